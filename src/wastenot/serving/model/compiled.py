"""Functions over arrays and numbers that run as machine code where Numba is there, and as they are where it is not.

Numba hands the fields of a named tuple from function to function one by one, each array as seven numbers. Where many
functions share a large one, compiling that takes longer than all else, so :func:`by_address` hands over its address instead.

It also optimises each function and makes machine code of it, callees included, whoever calls it: the innermost once for
each floor above them. Functions that Python never calls (:func:`compiled_inside`) are left as they are lowered until they
are part of one that it does call, which takes a third less time in all.
"""

# mypy: disable-error-code="no-untyped-call, override, misc, untyped-decorator, unused-ignore"
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

try:
    from llvmlite import ir
    from numba import njit, typeof
    from numba._dynfunc import make_function
    from numba.core import cgutils, types
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import register_pass
    from numba.core.imputils import lower_getattr_generic
    from numba.core.typed_passes import NativeLowering
    from numba.core.typing.templates import AttributeTemplate
    from numba.extending import NativeValue, infer_getattr, models, register_model, typeof_impl, unbox
    from numba.np.arrayobj import populate_array

    COMPILED = True
except ImportError:
    COMPILED = False

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def compiled(function: Callable[P, R], *, uses: Sequence[str] = (), **options: Any) -> Callable[P, R]:
    """The function, compiled at its first call; what was compiled is kept for the next process.

    Args:
        function: of arrays and numbers.
        uses: other files whose functions it calls: what is kept is of no use once one of them has changed. Numba itself
            watches only the file that the function stands in.
        options: of Numba's ``njit``, beside its cache.
    """
    if not COMPILED:
        return function
    options |= {"no_cfunc_wrapper": True}  # nobody calls it from C
    try:
        dispatcher: Any = njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep it in can be written to
        return cast("Callable[P, R]", njit(**options)(function))
    if uses:
        kept = dispatcher._cache._cache_file
        stamps = [(stat.st_mtime_ns, stat.st_size) for stat in map(os.stat, uses)]
        kept._source_stamp = (kept._source_stamp, *stamps)
    return cast("Callable[P, R]", dispatcher)


def compiled_inside(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """The function for compiled ones alone: they keep it with themselves, and Python cannot call it.

    Args:
        function: of arrays and numbers.
        options: of Numba's ``njit``.
    """
    if not COMPILED:
        return function
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": True, "pipeline_class": _Inside}
    dispatcher: Any = njit(**options)(function)
    by_types = dispatcher.get_call_template

    def for_few_types(arguments: Any, named: Any) -> Any:
        return by_types([_plain(each) for each in arguments], named)

    dispatcher.get_call_template = for_few_types
    return cast("Callable[P, R]", dispatcher)


def compile_ahead(function: Callable[..., object], *arguments: Any) -> None:
    """Compile a function of :func:`compiled` for such arguments, or load what an earlier process kept, without a call."""
    if COMPILED:
        cast("Any", function).compile(tuple(typeof(each) for each in arguments))


def by_address(named_tuple: type[T]) -> type[T]:
    """The class of a named tuple of one-dimensional, contiguous arrays, which compiled functions take by its address."""
    if COMPILED:

        @typeof_impl.register(named_tuple)
        def of(value: Any, context: Any) -> ByAddress:
            return ByAddress(types.BaseTuple.from_types([typeof_impl(each, context) for each in value], named_tuple))

    return named_tuple


def _plain(kind: Any) -> Any:
    """A type for all whole numbers, so that a function is not compiled for constants and for small ones again."""
    kind = types.unliteral(kind)
    return types.int64 if isinstance(kind, types.Integer) else kind


if COMPILED:

    @register_pass(mutates_CFG=True, analysis_only=False)
    class _LoweringInside(NativeLowering):
        """Leaves a function as it is lowered, for those that call it to optimise and to make machine code of."""

        _name = "lowering_inside"

        def run_pass(self, state: Any) -> bool:
            """Lower it; for callers it needs an address as a key, which is nowhere, as Python does not call it."""
            library = state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
            library._optimize_final_module = lambda: None
            library._finalize_final_module = lambda: setattr(library, "_finalized", True)
            state.flags.no_compile = True
            super().run_pass(state)
            lowered = state["cr"]
            nowhere = make_function(lowered.fndesc.lookup_module(), state.func_id.func_name, "", 0, lowered.env, (library,))
            state.targetctx.insert_user_function(nowhere, lowered.fndesc, [library])
            state["cr"] = lowered._replace(cfunc=nowhere)
            return True

    class _Inside(CompilerBase):
        """Numba's compiler of functions, with :class:`_LoweringInside` for the last of its passes but one."""

        def define_pipelines(self) -> list[Any]:
            """Its pipeline."""
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.passes = [
                (_LoweringInside, about) if each is NativeLowering else (each, about) for each, about in passes.passes
            ]
            passes.finalize()
            return [passes]

    class ByAddress(types.Type):
        """A named tuple of arrays as the address of their places and lengths."""

        def __init__(self, tuple_type: Any) -> None:
            self.tuple_type = tuple_type
            super().__init__(f"{tuple_type.instance_class.__name__} by address")

        @property
        def key(self) -> Any:
            """What tells types apart."""
            return self.tuple_type

    @register_model(ByAddress)
    class _Model(models.PrimitiveModel):
        def __init__(self, manager: Any, of: Any) -> None:
            super().__init__(manager, of, ir.LiteralStructType([cgutils.voidptr_t, cgutils.intp_t]).as_pointer())

    @infer_getattr
    class _Fields(AttributeTemplate):
        key = ByAddress

        def generic_resolve(self, of: Any, name: str) -> Any:
            return of.tuple_type[of.tuple_type.fields.index(name)]

    @lower_getattr_generic(ByAddress)
    def _field(context: Any, builder: Any, of: Any, address: Any, name: str) -> Any:
        at = of.tuple_type.fields.index(name)
        kind = of.tuple_type[at]
        place, length = (builder.load(cgutils.gep_inbounds(builder, address, at, part)) for part in range(2))
        for loaded in (place, length):  # once, whatever is stored meanwhile
            loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        array = context.make_array(kind)(context, builder)
        size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        data = builder.bitcast(place, context.get_data_type(kind.dtype).as_pointer())
        populate_array(array, data, [length], [cgutils.intp_t(size)], size, None)
        return array._getvalue()

    @unbox(ByAddress)
    def _unboxed(of: Any, value: Any, c: Any) -> Any:
        native = c.unbox(of.tuple_type, value)
        address = cgutils.alloca_once(c.builder, c.context.get_value_type(of).pointee, size=len(of.tuple_type))
        for at, kind in enumerate(of.tuple_type):
            array = c.context.make_array(kind)(c.context, c.builder, c.builder.extract_value(native.value, at))
            for part, number in enumerate((c.builder.bitcast(array.data, cgutils.voidptr_t), array.nitems)):
                c.builder.store(number, cgutils.gep_inbounds(c.builder, address, at, part))
        return NativeValue(address, is_error=native.is_error, cleanup=native.cleanup)

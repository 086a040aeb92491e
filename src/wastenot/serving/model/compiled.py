"""Functions over arrays and numbers that run as machine code where Numba is there, and as they are where it is not.

Numba hands the fields of a named tuple from function to function one by one, each array as seven numbers. Where many
functions share a large one, compiling that takes longer than all else, so :func:`by_address` hands over its address instead.

It also optimises each function and makes machine code of it, callees included, whoever calls it: the innermost once for
each floor above them. Functions that Python never calls (:func:`compiled_inside`) are left as they are lowered until they
are linked to one that it does call, which takes half the time in all. The fewer of those there are, the better.

More than half of the time that is left is Numba's own, in Python. As none of the functions allocates, they take only the
passes that they need, and what Numba finds out at thousands of places is looked up once (``_FASTER``).
"""

# mypy: disable-error-code="no-untyped-call, override, misc, untyped-decorator, unused-ignore"
from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

try:
    from llvmlite import ir
    from numba import njit, typeof
    from numba._dynfunc import make_function
    from numba.core import base, cgutils, types
    from numba.core.compiler import CompilerBase, Flags
    from numba.core.compiler_machinery import PassManager, register_pass
    from numba.core.cpu import CPUContext
    from numba.core.imputils import lower_getattr_generic
    from numba.core.typed_passes import (
        IRLegalization,
        NativeLowering,
        NoPythonBackend,
        NopythonTypeInference,
        PreLowerStripPhis,
    )
    from numba.core.typing.templates import AttributeTemplate
    from numba.core.untyped_passes import FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode
    from numba.extending import NativeValue, infer_getattr, models, register_model, typeof_impl, unbox

    COMPILED = True
except ImportError:
    COMPILED = False

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_MANY = 20
"""Functions that another calls."""


def compiled(function: Callable[P, R], *, uses: Sequence[str] = (), **options: Any) -> Callable[P, R]:
    """The function, compiled at its first call; what was compiled is kept for the next process.

    It makes no arrays, so that no references to them are counted, which is several times as fast. Of ours it calls those of
    :func:`compiled_inside`.

    Args:
        function: of arrays and numbers.
        uses: other files whose functions it calls: what is kept is of no use once one of them has changed. Numba itself
            watches only the file that the function stands in.
        options: of Numba's ``njit``, beside its cache.
    """
    if not COMPILED:
        return function
    options |= {"no_cfunc_wrapper": True, "_nrt": False, "pipeline_class": _Outside}  # nobody calls it from C
    try:
        dispatcher: Any = njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep it in can be written to
        return cast("Callable[P, R]", njit(**options)(function))
    kept = dispatcher._cache._cache_file
    stamps = [(stat.st_mtime_ns, stat.st_size) for stat in map(os.stat, (__file__, *uses))]
    kept._source_stamp = (kept._source_stamp, *stamps)
    kept._load_index = partial(_readable, kept._load_index)
    return cast("Callable[P, R]", dispatcher)


def _readable(load_index: Callable[[], dict[Any, str]]) -> dict[Any, str]:
    """What is kept; nothing where it names types of another version of the package, or was cut short."""
    try:
        return load_index()
    except Exception:  # whatever unpickling raises
        return {}


def compiled_inside(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """The function for compiled ones alone: they keep it with themselves, and Python cannot call it.

    Args:
        function: of arrays and numbers.
        options: of Numba's ``njit``.
    """
    if not COMPILED:
        return function
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": True, "pipeline_class": _Inside, "_nrt": False}
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
    if not COMPILED:
        return named_tuple
    plain: Any = named_tuple

    def replaced(arrays: Any, **others: Any) -> Any:
        found, table = plain._replace(arrays, **others), arrays.table.copy()
        for name, each in others.items():
            table[plain._fields.index(name)] = each.ctypes.data, each.size
        found.table = table
        return found

    members: dict[str, Any] = {"__doc__": plain.__doc__, "__module__": plain.__module__, "_replace": replaced}
    members |= {"table": cached_property(_table), "address": cached_property(_address)}
    addressed = type(plain.__name__, (plain,), members)  # unlike a named tuple, it can keep the table

    @typeof_impl.register(addressed)
    def of(value: Any, context: Any) -> ByAddress:
        return ByAddress(types.BaseTuple.from_types([typeof_impl(each, context) for each in value], addressed))

    return addressed


def _table(arrays: Any) -> Any:
    """Places and lengths of arrays: written once, as arrays do not move."""
    return np.array([(each.ctypes.data, each.size) for each in arrays], dtype=np.intp)


def _address(arrays: Any) -> int:
    """Where their table stands."""
    return int(arrays.table.ctypes.data)


def _plain(kind: Any) -> Any:
    """A type for all whole numbers, so that a function is not compiled for constants and for small ones again."""
    kind = types.unliteral(kind)
    return types.int64 if isinstance(kind, types.Integer) else kind


if COMPILED:
    _call_type, _function = types.Function.get_call_type, CPUContext.get_function

    @cache
    def _of_numbers(function: Any, context: Any, arguments: Any) -> Any:
        return _call_type(function, context, arguments, {})

    def _known_call_type(function: Any, context: Any, arguments: Any, named: Any) -> Any:
        """What an operator makes of numbers: Numba tries dozens of signatures each time."""
        plain = tuple(map(types.unliteral, arguments))
        if named or not all(isinstance(each, types.Number | types.Boolean | types.Array) for each in plain):
            return _call_type(function, context, arguments, named)
        return _of_numbers(function, context, plain)

    def _plain_arrays(context: Any, function: Any, signature: Any, **first: Any) -> Any:
        """Ours are no other class' arrays: Numba looks everywhere for how such would be converted, at each use of one."""
        if isinstance(function, str) and function == "__array__":
            raise NotImplementedError
        return _function(context, function, signature, **first)

    _FASTER: tuple[tuple[Any, str, Any], ...] = (
        (types.Function, "get_call_type", _known_call_type),
        (CPUContext, "get_abi_sizeof", cache(CPUContext.get_abi_sizeof)),  # LLVM reads a module each time
        (CPUContext, "get_function", _plain_arrays),
        (base, "_has_loc", cache(base._has_loc)),
    )

    @contextmanager
    def _faster() -> Iterator[None]:
        """Numba without what it would do again and again for such functions, and without looking for garbage meanwhile."""
        collects = gc.isenabled()
        gc.disable()  # a tenth of the time
        before = [getattr(owner, name) for owner, name, _ in _FASTER]
        for owner, name, ours in _FASTER:
            setattr(owner, name, ours)
        try:
            yield
        finally:
            for (owner, name, _), theirs in zip(_FASTER, before, strict=True):
                setattr(owner, name, theirs)
            if collects:
                gc.enable()

    def _as_lowered(library: Any, module: Any) -> None:
        """Numba simplifies each function by itself first, which is done again once all are together."""
        module.data_layout = library._codegen._data_layout

    @register_pass(mutates_CFG=True, analysis_only=False)
    class _Lowering(NativeLowering):
        """Optimises a function once, with all that it calls: Numba's cheap round before that is for counting references."""

        _name = "lowering_once"

        def run_pass(self, state: Any) -> bool:
            """Lower it."""
            library = state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
            library.enable_object_caching()
            link = library.add_linking_library

            def link_all(called: Any) -> None:
                if called not in library._linking_libraries:
                    link(called)
                    for each in getattr(called, "calls", ()):  # of one that has not linked them itself
                        link_all(each)

            def optimise() -> None:
                # Of many functions, LLVM's first level makes code about as fast as its third, in two thirds of the time.
                level = {"opt": 1} if len(library._linking_libraries) > _MANY else {}
                passes = library._codegen._module_pass_manager(**level)  # before Numba 0.62 no pair
                passes, *builder = passes if isinstance(passes, tuple) else (passes,)
                passes.run(library._final_module, *builder)

            library.add_linking_library, library._optimize_final_module = link_all, optimise
            library._optimize_functions = partial(_as_lowered, library)
            return bool(super().run_pass(state))

    @register_pass(mutates_CFG=True, analysis_only=False)
    class _LoweringInside(NativeLowering):
        """Leaves a function as it is lowered, for those that call it to optimise and to make machine code of."""

        _name = "lowering_inside"

        def run_pass(self, state: Any) -> bool:
            """Lower it; for callers it needs an address as a key, which is nowhere, as Python does not call it."""
            library = state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)

            def finish() -> None:  # whoever calls it links what it calls, too
                for each in library._final_module.functions:
                    if not each.is_declaration:
                        each.linkage = "linkonce_odr"
                library.calls, library._finalized = library._linking_libraries, True

            library._optimize_functions, library.finalize = partial(_as_lowered, library), finish
            library._get_module_for_linking = lambda: library._final_module
            state.flags.no_compile = True
            super().run_pass(state)
            library._ensure_finalized()
            lowered = state["cr"]
            nowhere = make_function(lowered.fndesc.lookup_module(), state.func_id.func_name, "", 0, lowered.env, (library,))
            state.targetctx.insert_user_function(nowhere, lowered.fndesc, [library])
            state["cr"] = lowered._replace(cfunc=nowhere)
            return True

    _PASSES = (
        TranslateByteCode, FixupArgs, IRProcessing, ReconstructSSA, NopythonTypeInference, PreLowerStripPhis,
        IRLegalization,
    )  # fmt: skip

    class _Flags(Flags):
        """Numba's flags, a part of all its keys: they are asked thousands of times whether they are still the same."""

        def __eq__(self, other: object) -> bool:
            return isinstance(other, _Flags) and self._values == other._values

        def __hash__(self) -> int:
            return hash(_Flags)

    class _Passes(PassManager):
        """Without a report on each, and checks of each for Numba's developers."""

        def _runPass(self, index: int, which: Any, state: Any) -> None:  # noqa: N802 - Numba's name
            which.analysis = self._analysis
            which.run_pass(state)

    class _Outside(CompilerBase):
        """Numba's compiler without the passes for what is not in such functions: closures, ``with``, arrays as a whole."""

        lowering: Any = _Lowering

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*(_Flags(each) if isinstance(each, Flags) else each for each in arguments))

        def _compile_core(self) -> Any:
            with _faster():
                return super()._compile_core()

        def define_pipelines(self) -> list[Any]:
            """Its only one."""
            passes = _Passes("wastenot")
            for each in (*_PASSES, self.lowering, NoPythonBackend):
                passes.add_pass(each, each.__name__)
            passes.finalize()
            return [passes]

    class _Inside(_Outside):
        """The same, for functions that Python never calls."""

        lowering = _LoweringInside

    class ByAddress(types.Type):
        """A named tuple of arrays as the address of their places and lengths."""

        def __init__(self, tuple_type: Any) -> None:
            self.tuple_type = tuple_type
            super().__init__(f"{tuple_type.instance_class.__name__} by address")

        @property
        def key(self) -> Any:
            """What tells types apart."""
            return self.tuple_type

        def __hash__(self) -> int:
            return hash(self.name)  # that of all arrays takes long, and is asked for thousands of times

        def __eq__(self, other: object) -> bool:
            return isinstance(other, ByAddress) and (self.key is other.key or self.key == other.key)

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
        model, item = context.data_model_manager[kind], context.get_data_type(kind.dtype)
        size = cgutils.intp_t(context.get_abi_sizeof(item))
        parts = {"nitems": length, "itemsize": size, "data": builder.bitcast(place, item.as_pointer())}
        parts |= {"shape": cgutils.pack_array(builder, [length]), "strides": cgutils.pack_array(builder, [size])}
        array = ir.Constant(model.get_value_type(), None)  # with no owner
        for part, found in parts.items():
            array = builder.insert_value(array, found, model.get_field_position(part))
        return array

    @unbox(ByAddress)
    def _unboxed(of: Any, value: Any, c: Any) -> Any:
        number = c.pyapi.object_getattr_string(value, "address")
        address = cgutils.alloca_once(c.builder, c.context.get_value_type(of))
        with c.builder.if_then(cgutils.is_not_null(c.builder, number), likely=True):
            c.builder.store(c.builder.bitcast(c.pyapi.long_as_voidptr(number), c.context.get_value_type(of)), address)
            c.pyapi.decref(number)
        return NativeValue(c.builder.load(address), is_error=cgutils.is_null(c.builder, number))

"""What a vendor's package implements: lock, lease, journal, claim, recovery and the daemon then are the same for all.

A vendor's module, which :attr:`wastenot.core.vendors.Vendor.driver` names, is a :class:`GpuDriver`. It finds the vendor's
cards, opens one as a :class:`wastenot.devices.protocol.Device`, and gives a :class:`ClockSetter` of each: the few calls that
change it. The device's clocks are :func:`wastenot.devices.common.control.clocks_of` of that setter, and nothing else calls
it.

    request ──▶ LeasedClocks ──▶ journal on disk ──▶ ClockSetter.apply ──▶ driver
    release, exit, signal ─────▶ ClockSetter.restore ──▶ journal removed
    SIGKILL ──▶ next command: recover ──▶ ClockSetter.restore ──▶ journal removed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Protocol, cast

from wastenot.core.errors import DeviceError, WastenotError
from wastenot.core.vendors import Vendor, vendor_of_id, with_drivers
from wastenot.devices.common.journal import Restore
from wastenot.devices.common.patience import answers
from wastenot.devices.common.rights import forbidden

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device

Kind = Literal["core", "memory", "power", "profile"]
"""A part of a setting."""
KINDS: tuple[Kind, ...] = ("core", "memory", "power", "profile")


class DriverError(DeviceError):
    """A call to a driver failed."""


class NoPermissionError(DriverError):
    """The user lacks the permission for the call, which has changed nothing."""


class NotSupportedError(DriverError):
    """The GPU or its driver does not support the call, which has changed nothing."""


class NoSuchGpuError(DriverError):
    """The driver knows no GPU of that index or unique ID."""


class GpuLostError(DriverError):
    """The GPU no longer answers."""


class ReadOnlyError(DriverError):
    """The call would change the GPU, which was not allowed."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """A card's workload power profiles, by name.

    Attributes:
        available: that may be requested.
        requested: by whoever; several may be.
        enforced: those of them that the card goes by: a request of higher priority, or one from outside the system, may win.
    """

    available: tuple[str, ...]
    requested: tuple[str, ...]
    enforced: tuple[str, ...]


class ClockSetter(Protocol):
    """One card's clocks as its driver sets them, in MHz and W. It keeps no state that an undo needs, and takes no lease.

    Attributes:
        unique_id: of the card. It names the journal, so no other card of any vendor has it.
        allow_changes: whether changes are allowed; where they are not, ``apply`` and ``restore`` raise ReadOnlyError.
    """

    unique_id: str
    allow_changes: bool

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """By memory clock, the core clocks that may be requested with it, both ascending; asked often, so keep them."""

    def power_limit_range_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit, whoever may set it; ``None`` where it is not reported."""

    def power_limit_w(self) -> float | None:
        """The power limit in force, to which it is restored; ``None`` where there is none."""

    def default_power_limit_w(self) -> float | None:
        """The power limit that the card comes with; ``None`` where it is not reported."""

    def power_w(self) -> float | None:
        """Its power, averaged over about a second where it reports that; ``None`` where it reports none."""

    def profiles(self) -> Profiles | None:
        """Its workload power profiles; ``None`` where it has none."""

    def request_profiles(self, names: Sequence[str]) -> None:
        """Request these profiles in place of all that are requested now.

        Raises:
            NoPermissionError, NotSupportedError: nothing was changed.
            DriverError: it failed, and may have changed something.
        """

    def is_needless(self, kind: Kind, value: float) -> bool:
        """Whether a supported value is better left to the driver, which then does the same."""

    def apply(self, kind: Kind, value: float) -> None:
        """Set one part of a setting but the profile. A core clock is a ceiling: the card may run below it.

        Errors are those of :meth:`request_profiles`.
        """

    def restore(self, restore: Restore, kinds: set[Kind]) -> None:
        """Restore parts of a setting to what a journal says, trying all before raising. What was never set may be restored.

        Raises:
            NotSupportedError: the card does not support the call; :func:`restore_all` knows whether that matters.
            DriverError: something could not be restored; the first failure.
        """


@dataclass(frozen=True, slots=True)
class Missing:
    """A card that did not answer.

    Attributes:
        name: its name in wastenot.
        ask_again: what sets its clocks, if it answers now; raises as :func:`setter_of` does.
    """

    name: str
    ask_again: Callable[[], ClockSetter]


@dataclass(frozen=True, slots=True)
class Examined:
    """What a GPU is and supports, as ``wastenot doctor`` reports it.

    Attributes:
        name: its name in wastenot.
        architecture: name of the architecture; ``None`` where unknown.
        mig: whether it is cut into slices (NVIDIA's MIG instances); ``None`` where it has no such mode.
        persistence: whether the driver stays loaded while nothing uses it.
        power_limit_w: power limit in force.
        power_limits_w: lowest and highest power limit.
        clocks: by memory clock in MHz, the lowest and highest core clock in MHz and how many there are.
        memory_clock_settable: ``None`` where that is only known by trying.
        profiles: its workload power profiles; ``None`` where it has none.
        busy: whether it computed when it was examined; ``None`` where that is not reported.
        held_by: processes that keep it open, by ID, and their names where they are visible; this one left out.
        published_window_s: window that its power reading averages over, as published for its architecture.
        torch_index: its index in PyTorch; ``None`` where PyTorch does not see it.
    """

    name: str
    model: str
    uuid: str
    architecture: str | None
    mig: bool | None
    persistence: bool | None
    memory_bytes: int | None
    power_limit_w: float | None
    power_limits_w: tuple[float, float] | None
    clocks: Mapping[float, tuple[float, float, int]]
    memory_clock_settable: bool | None
    profiles: Profiles | None
    busy: bool | None
    held_by: Mapping[int, str | None]
    published_window_s: float | None
    torch_index: int | None


class GpuDriver(Protocol):
    """A vendor's driver.

    Every function may raise MissingExtraError, where the driver or its Python binding is not installed, and DriverError.
    """

    def version(self) -> str:
        """Version of the driver."""

    def count(self) -> int:
        """Number of cards, which have indices from 0 on."""

    def unique_id(self, index: int) -> str:
        """Unique ID of a card."""

    def process_ids(self, index: int) -> tuple[int, ...] | None:
        """IDs of the processes that compute on a card, in this process' space; ``None`` where they are not reported."""

    def examine(self, index: int, torch_indices: Mapping[str, int]) -> Examined:
        """Examine a card without changing anything.

        Args:
            index: of the card.
            torch_indices: index in PyTorch, by unique ID as PyTorch writes it.
        """

    def open_gpu(self, name: str, *, allow_clock_control: bool = False, restore: Restore | None = None) -> Device:
        """Open a card by name, the vendor's name and an index or a unique ID; recovery has been tried before.

        Raises:
            BadInputError: there is no such card, or it cannot be used; the message lists those there are.
        """

    def clock_setter(self, unique_id: str, *, allow_changes: bool) -> ClockSetter:
        """What sets the clocks of a card.

        Raises:
            NoSuchGpuError: there is no such card.
        """


def restore_all(setter: ClockSetter, restore: Restore, kinds: set[Kind], changed: frozenset[Kind] | set[Kind]) -> None:
    """Restore parts of a setting, trying all before raising.

    Args:
        setter: of the card.
        restore: what it is restored to.
        kinds: that may have been changed: what the card does not support of these has not been.
        changed: those that are known to have been, so that the same answer is a failure.

    Raises:
        DriverError: something could not be restored; the first failure.
    """
    failed: DriverError | None = None
    for kind in sorted(kinds):
        try:
            setter.restore(restore, {kind})
        except NotSupportedError as error:
            if kind in changed:
                failed = failed or error
        except DriverError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def driver_of(vendor: Vendor) -> GpuDriver:
    """The driver of a vendor that has one."""
    assert vendor.driver is not None
    return cast(GpuDriver, import_module(vendor.driver))


def setter_of(unique_id: str) -> ClockSetter:
    """What may change the clocks of a card of any vendor.

    Raises:
        NoSuchGpuError: no vendor or its driver knows the card.
        MissingExtraError: the driver or its Python binding is not installed.
        DriverError: it failed.
    """
    vendor = vendor_of_id(unique_id)
    if vendor is None:
        raise NoSuchGpuError(f"{unique_id}: no known vendor's GPUs have such an ID")
    return driver_of(vendor).clock_setter(unique_id, allow_changes=True)


def names_here() -> dict[Vendor, tuple[str, ...]]:
    """Names such as ``nvidia:0`` of all cards of each vendor whose driver answers.

    Raises:
        WastenotError: none answers; the first vendor's reason.
    """
    found, problems = dict[Vendor, tuple[str, ...]](), list[WastenotError]()
    for vendor in with_drivers():
        try:
            found[vendor] = tuple(f"{vendor.name}:{index}" for index in range(driver_of(vendor).count()))
        except WastenotError as error:
            problems.append(error)
    if not found:
        raise problems[0]
    return found


def setters_here(missed: Callable[[str, WastenotError], None]) -> tuple[ClockSetter | Missing, ...]:
    """What may change the clocks of all cards of all vendors, in the order of their indices.

    Args:
        missed: takes the name of a card that does not answer, in time or at all, and why; it keeps its place.

    Raises:
        WastenotError: no driver answers.
    """
    asks = {
        name: partial(_setter_at, driver_of(vendor), index)
        for vendor, names in names_here().items()
        for index, name in enumerate(names)
    }
    found = dict[str, ClockSetter | Missing]()
    for (name, ask), answer in zip(asks.items(), answers([*asks.values()]), strict=True):
        if isinstance(answer, WastenotError):
            missed(name, answer)
        elif isinstance(answer, Exception):
            raise answer
        found[name] = Missing(name, ask) if isinstance(answer, WastenotError) else answer
    return tuple(found.values())


def _setter_at(driver: GpuDriver, index: int) -> ClockSetter:
    return driver.clock_setter(driver.unique_id(index), allow_changes=True)


def refusal(allow_changes: bool) -> str | None:
    """Why wastenot itself refuses to change clocks; ``None`` where it does not."""
    if forbidden() is None and not allow_changes:
        return "clocks are only changed with `allow_clock_control`"
    return forbidden()

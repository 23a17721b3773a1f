"""The software drive with modelled flash."""

from __future__ import annotations

from pathlib import Path

from kvdrive.targets.software import DEFAULT_CAPACITY, SoftwareDrive


class Emulator(SoftwareDrive):
    """A drive backed by the file `path`: mounted with the sessions it holds, or made where there is none.

    `engine` is "hls" (the compiled kernels), "fast" (the same bits, vectorised) or "rtl" (the verilated kernels, where
    they are built). `format` removes everything from the drive. `capacity_bytes` of K and V and `preset` (the flash
    that is modelled: kvdrive._native.presets()) apply to a new or formatted drive, whose file is sparse until written.
    Policy groups: `hot_bytes` of K and V and `index_bytes` of its index stay in memory; reading them takes no time.
    Raises TargetError when the file is something else or in use by another drive, or when there is no such preset or
    engine.
    """

    def __init__(
        self,
        path: Path,
        engine: str = "hls",
        threads: int = 1,
        capacity_bytes: int = DEFAULT_CAPACITY,
        *,
        format: bool = False,
        preset: str = "",
        hot_bytes: int = 0,
        index_bytes: int = 0,
    ) -> None:
        super().__init__(
            path,
            engine,
            threads,
            capacity_bytes,
            format=format,
            preset=preset,
            hot_bytes=hot_bytes,
            index_bytes=index_bytes,
        )

    def device_ns(self) -> int:
        return int(self._open_drive().flash_stats()["device_ns"])

    def busy(self) -> dict[str, float]:
        """Modelled ns since the drive was opened: `device_ns` in all, and how long parts of it were busy.

        `channel_busy_ns`: the mean of the flash channels; `host_link_busy_ns`: the link to the host. Raises
        TargetError.
        """
        stats = self._open_drive().flash_stats()
        channels = stats["channel_busy_ns"]
        return {
            "device_ns": stats["device_ns"],
            "channel_busy_ns": sum(channels) / len(channels),
            "host_link_busy_ns": stats["host_link_busy_ns"],
        }

    def keep_trace(self, events: int) -> bool:
        self._open_drive().keep_trace(events)
        return True

    def trace(self) -> str:
        return self._open_drive().trace()

"""The report: one line a check, the first problems below one that failed, counts at the end."""

from __future__ import annotations

import os
import time

SHOWN = 8


class Report:
    """Collects checks; a check over no case at all fails, since it has shown nothing."""

    def __init__(self) -> None:
        self.checks = 0
        self.failed = 0
        self.skipped = 0
        self._begin = time.monotonic()

    def check(self, title: str, problems: list[str], cases: int = 1) -> bool:
        """Prints one line. `cases` is how many things were compared."""
        self.checks += 1
        if cases == 0:
            problems = ["there was nothing to check"]
        count = f" ({cases})" if cases != 1 else ""
        print(f"{'FAIL' if problems else 'ok  '}  {title}{count}", flush=True)
        for problem in problems[:SHOWN]:
            print(f"        {problem}", flush=True)
        if len(problems) > SHOWN:
            print(f"        … and {len(problems) - SHOWN} more", flush=True)
        self.failed += bool(problems)
        return not problems

    def equal(self, title: str, found: object, expected: object) -> bool:
        """One comparison."""
        return self.check(title, [] if found == expected else [f"expected {expected!r}, got {found!r}"])

    def missing(self, title: str, what: str) -> None:
        """A client is not installed: elsewhere that is a loud skip, in CI it is a failure."""
        if os.environ.get("CI"):
            self.check(title, [f"{what} is not installed, and CI is set"])
            return
        self.skipped += 1
        print(f"SKIP  {title}: {what} is not installed; this run proves nothing of it", flush=True)

    def section(self, title: str) -> None:
        print(f"\n{title}  [{time.monotonic() - self._begin:.1f} s]", flush=True)

    def close(self) -> int:
        """Prints the counts; the exit code."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        print(
            f"\n{self.checks} checks, {self.failed} failed{skipped}  [{time.monotonic() - self._begin:.1f} s]",
            flush=True,
        )
        return 1 if self.failed else 0


def differences(found: dict, expected: dict) -> list[str]:
    """Where two tables of counts differ; an absent key counts as zero."""
    keys = sorted({*found, *expected}, key=str)
    return [
        f"{key}: expected {expected.get(key, 0)}, got {found.get(key, 0)}"
        for key in keys
        if found.get(key, 0) != expected.get(key, 0)
    ]

"""The fixtures that this suite shares with others."""

from suites.support.fixtures import harness, nobodys_machine, recorded, recorded_folder

__all__ = ["harness", "nobodys_machine", "recorded", "recorded_folder"]

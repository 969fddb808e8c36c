from pathlib import Path

from kctl.runtime.config import Config

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def test_every_setting_is_in_the_table_of_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, field in Config.options().items():
        assert f"| `{name}` |" in text
        assert f"| {field.metadata['doc']} |" in text

"""docs/configuration.md shows the settings that there are."""

from kctl.runtime.config import Config
from scripts.draw_config import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m scripts.draw_config"


def test_every_setting_is_on_it_and_secrets_are_marked() -> None:
    lines = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `")}
    assert list(lines) == list(Config.options())
    secrets = [name for name, line in lines.items() if "*Secret.*" in line]
    assert secrets == [
        "kctl.zookeeper.auth",
        "zookeeper.ssl.keystore.password",
        "sasl.jaas.config",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.truststore.password",
    ]

"""Where log lines go when kctl is a program: standard error, for people or as JSON."""

import logging
import sys

import structlog


def set_up_logging(*, as_json: bool, debug: bool = False) -> None:
    """Everything through the standard library's loggers, so that levels are set there."""
    level = logging.DEBUG if debug else logging.INFO
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=level, force=True)
    for chatty in ("asyncio", "aiozk", "aiokafka"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    renderer: list[structlog.typing.Processor]
    if as_json:
        renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        renderer = [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderer,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )

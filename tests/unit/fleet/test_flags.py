"""Tests that the demo's exporter can replace `trainvitals serve` in the stack."""

from fleet.__main__ import parse_arguments
from trainvitals.stack.plan import Supply, plan_programs
from trainvitals.stack.settings import Settings


def test_it_takes_every_flag_that_the_stack_gives_the_exporter(tmp_path):
    """The demo's exporter accepts every flag that the stack passes to its exporter."""
    program = tmp_path / "prometheus"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    settings = Settings(
        tmp_path / "state", exporter_command=("serve", "--begin=30"), prometheus_port=21_090
    )
    programs = plan_programs(settings, Supply(lambda _: program))
    exporter = next(each for each in programs if each.name == "exporter")
    options = parse_arguments(list(exporter.command))
    assert (options.command, options.begin) == ("serve", 30)
    assert options.prometheus == "http://127.0.0.1:21090"

"""Files that come with the package."""

import pytest

from trainvitals.errors import StackError
from trainvitals.shipped import find_shipped


def test_files_of_an_installed_package_come_first(tmp_path):
    """An installed package has its own; without one and without a checkout, an error says so."""
    package = tmp_path / "site-packages/trainvitals"
    with pytest.raises(StackError, match=r"no prometheus in .*install trainvitals again"):
        find_shipped("prometheus", package)
    (tmp_path / "prometheus").mkdir()
    assert find_shipped("prometheus", package) == tmp_path / "prometheus"
    (package / "stack/files/prometheus").mkdir(parents=True)
    assert find_shipped("prometheus", package) == package / "stack/files/prometheus"

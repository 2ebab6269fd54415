"""Tests for the search for files that are shipped with the package."""

import pytest

from trainvitals.errors import StackError
from trainvitals.shipped import find_shipped


def test_files_of_an_installed_package_come_first(tmp_path):
    """Files in the package are preferred to the checkout; without any files, an error is raised."""
    package = tmp_path / "site-packages/trainvitals"
    with pytest.raises(StackError, match=r"no prometheus in .*install trainvitals again"):
        find_shipped("prometheus", package)
    (tmp_path / "prometheus").mkdir()
    assert find_shipped("prometheus", package) == tmp_path / "prometheus"
    (package / "stack/files/prometheus").mkdir(parents=True)
    assert find_shipped("prometheus", package) == package / "stack/files/prometheus"

"""The live measurement keeps to the folder that it began in."""

import pytest

from mara_ray.artifacts import write_json
from mara_ray.errors import UserError
from mara_ray.live.margin import _claim


def test_a_folder_with_another_measurement_is_refused(tmp_path):
    _claim(tmp_path / "new", "configuration")
    _claim(tmp_path / "new", "configuration")
    with pytest.raises(UserError, match=r"^--out: .* holds another measurement; choose another"):
        _claim(tmp_path / "new", "another")
    write_json(tmp_path / "old" / "pace" / "outcome.json", {})
    with pytest.raises(UserError, match="holds another measurement"):
        _claim(tmp_path / "old", "configuration")

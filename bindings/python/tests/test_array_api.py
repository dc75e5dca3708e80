"""tenon.array_api: what is put together in Python; make test-array-api runs the standard's own tests."""

import math

import pytest

pytest.importorskip("tenon._tensor", reason="the package has no tensors")
numpy = pytest.importorskip("numpy")

import tenon  # noqa: E402
from tenon import array_api as xp  # noqa: E402


def same(found, expected):
    expected = numpy.asarray(expected)
    assert found.shape == expected.shape
    numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=1e-6, atol=1e-7)


def test_the_namespace_of_a_tensor():
    x = tenon.ones(2)
    assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ValueError, match="2024.12"):
        x.__array_namespace__(api_version="1999.12")
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] is xp.float32
    assert set(info.dtypes(kind="unsigned integer")) == {"uint8"}


def test_tensors_without_dimensions_promote_as_others():
    small, large = xp.ones((2,), dtype=xp.int8), xp.asarray(1, dtype=xp.int32)
    assert xp.add(small, large).dtype is xp.int32 and (small + large).dtype is xp.int8
    assert xp.add(small, 1).dtype is xp.int8


def test_a_diagonal_outside_is_empty_however_far():
    for k in range(-4, 6):
        same(xp.eye(3, 4, k=k), numpy.eye(3, 4, k=k))
    for k in (2**63, -2**63, 2**70):
        same(xp.eye(3, k=k), numpy.zeros((3, 3)))
    for k in (2**63 - 1, -2**63):
        same(tenon.eye(3, k=k), numpy.zeros((3, 3)))
    with pytest.raises(ValueError, match="-1"):
        tenon.eye(3, -1)


@pytest.mark.parametrize("name", ["asinh", "atanh", "signbit", "expm1", "log1p"])
def test_unary(name):
    values = numpy.array([-0.9, -1e-9, 0.3, 0.99])
    reference = {"asinh": "arcsinh", "atanh": "arctanh"}.get(name, name)
    same(getattr(xp, name)(xp.asarray(values)), getattr(numpy, reference)(values))
    same(xp.acosh(xp.asarray([1.0, 2, 1e20, 0.5], dtype="float64"))[:3],
         numpy.arccosh([1.0, 2, 1e20]))


@pytest.mark.parametrize("name", ["hypot", "copysign", "logaddexp", "nextafter"])
def test_binary(name):
    a = numpy.array([3.0, -0.0, 1e200, -2, math.inf])
    b = numpy.array([4.0, -1, -1e200, 5, 1])
    same(getattr(xp, name)(xp.asarray(a), xp.asarray(b)), getattr(numpy, name)(a, b))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_shifts(dtype):
    values = numpy.array([1, 5, 100, 3]).astype(dtype)
    places = numpy.array([0, 1, 7, 3]).astype(dtype)
    same(xp.asarray(values) << xp.asarray(places), values << places)
    same(xp.asarray(-values) >> xp.asarray(places), -values >> places)
    same(tenon.asarray(values) >> 1, values >> 1)
    with pytest.raises(ValueError, match="float32"):
        tenon.ones(2) << 1


def test_sets_and_search():
    x = numpy.array([3, 1, 3, 2, 1])
    values, indices, inverse, counts = xp.unique_all(xp.asarray(x))
    for found, expected in zip((values, indices, inverse, counts), numpy.unique(
            x, return_index=True, return_inverse=True, return_counts=True)):
        same(found, expected)
    assert xp.unique_values(xp.asarray([math.nan, math.nan])).shape == (2,)
    base, wanted = numpy.array([1.0, 2, 2, 5]), numpy.array([[2.0, 0], [5, 9]])
    for side in ("left", "right"):
        same(xp.searchsorted(xp.asarray(base), xp.asarray(wanted), side=side),
             numpy.searchsorted(base, wanted, side=side))


def test_shapes_and_products():
    a, b = numpy.arange(24.0).reshape(2, 3, 4), numpy.arange(12.0).reshape(4, 3)
    x, y = xp.asarray(a), xp.asarray(b)
    same(xp.tensordot(x, y, axes=1), numpy.tensordot(a, b, axes=1))
    same(xp.tensordot(x, y, axes=((1,), (1,))), numpy.tensordot(a, b, axes=((1,), (1,))))
    same(xp.repeat(x, xp.asarray([1, 0, 2]), axis=1), numpy.repeat(a, [1, 0, 2], axis=1))
    same(xp.take_along_axis(x, xp.argsort(-x, axis=1), axis=1), -numpy.sort(-a, 1))
    same(xp.diff(y, axis=0), numpy.diff(b, axis=0))
    same(xp.cumulative_sum(y, axis=1, include_initial=True)[:, 1:], numpy.cumsum(b, 1))
    for found, expected in zip(xp.meshgrid(x[0, 0], y[:, 0]), numpy.meshgrid(a[0, 0], b[:, 0])):
        same(found, expected)
    same(xp.linalg.cross(y, y[:, ::-1]), numpy.cross(b, b[:, ::-1]))
    same(xp.linalg.matrix_norm(y, ord=1), numpy.linalg.norm(b, 1))
    same(xp.linalg.matrix_power(x[:, :3, :3], 5), numpy.linalg.matrix_power(a[:, :3, :3], 5))
    same(xp.linalg.vector_norm(x, axis=1, ord=3), numpy.linalg.norm(a, 3, axis=1))

"""What measured errors say: slopes, the number of directions for a given error, and whether the claim holds.

A curve is a list of measurements that differ in the number of directions alone, fewest first, each with
"directions" and, for "kernel", "attention" and "output", "mean" and "deviation".
"""

import math

import numpy as np

CLAIM = "256 directions give under 5% relative error of the attention matrix for heads of 64"
CLAIM_DIRECTIONS = 256
CLAIM_ERROR = 0.05
CLAIM_HEAD_DIM = 64
QUANTITIES = ("kernel", "attention", "output")
CASE = ("input", "sigma", "map", "rows")
# A number beyond this says only that the slope is next to nothing.
TOO_MANY = 10**9


def averages(repeated):
    """Mean and deviation of each quantity that repeated Errors have; no deviation (None) of a single one."""
    return {
        quantity: {
            "mean": float(np.mean(values)),
            "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        }
        for quantity, values in zip(QUANTITIES, zip(*repeated))
        if None not in values
    }


def curves(measurements):
    """The measurements of each case (input, sigma, map, rows), fewest directions first."""
    found = {}
    for measurement in sorted(measurements, key=lambda measurement: measurement["directions"]):
        found.setdefault(tuple(measurement[name] for name in CASE), []).append(measurement)
    first = {tuple(measurement[name] for name in CASE): None for measurement in measurements}
    return {case: found[case] for case in first}


def slope(curve, quantity):
    """Slope of the line through log error over log directions (least squares); None for a single point."""
    if len(curve) < 2:
        return None
    x, y = np.log([(entry["directions"], entry[quantity]["mean"]) for entry in curve]).T
    return float(np.polyfit(x, y, 1)[0])


def slopes(measurements):
    """The slope of each quantity in each case; with random directions −1/2 is expected."""
    return [
        {**dict(zip(CASE, case)), **{quantity: slope(curve, quantity) for quantity in QUANTITIES}}
        for case, curve in curves(measurements).items()
    ]


def needed_directions(curve, quantity, error):
    """How many directions bring the mean error down to `error`, and whether that is extrapolated.

    Between two measured numbers the line through them is taken. Outside of all it is the slope fitted to the
    half of the curve on that side, from the nearest number: where few directions let the floor of denominators
    bite, the error falls faster than further on. (None, True) where the error does not fall.
    """
    points = [(entry["directions"], entry[quantity]["mean"]) for entry in curve]
    for (fewer, before), (more, after) in zip(points, points[1:]):
        if before > error >= after:
            return _where(error, fewer, before, _slope_between(fewer, before, more, after)), False
    half = max(2, math.ceil(len(curve) / 2))
    below = points[0][1] <= error
    fitted = slope(curve[:half] if below else curve[-half:], quantity)
    if fitted is None or fitted >= 0:
        return None, True
    return _where(error, *points[0 if below else -1], fitted), True


def judge(measurements, uniform, head_dim):
    """The claim, case by case.

    Args:
        uniform: entries with "input", "sigma", "map" and the "attention" of uniform attention.

    Returns:
        a dictionary for JSON; "holds" is None where the number of directions of the claim was not measured.
    """
    of_uniform = {
        tuple(entry[name] for name in CASE[:-1]): entry["attention"]["mean"] for entry in uniform
    }
    cases = []
    for case, curve in curves(measurements).items():
        at_claim = [entry for entry in curve if entry["directions"] == CLAIM_DIRECTIONS]
        error = at_claim[0]["attention"] if at_claim else None
        number, extrapolated = needed_directions(curve, "attention", CLAIM_ERROR)
        cases.append(
            {
                **dict(zip(CASE, case)),
                "error": error,
                "holds": None if error is None else error["mean"] < CLAIM_ERROR,
                "uniform_error": of_uniform[case[:-1]],
                "directions_needed": number,
                "extrapolated": extrapolated,
            }
        )
    judged = [case["holds"] for case in cases if case["holds"] is not None]
    return {
        "statement": CLAIM,
        "is_about_this_head_dim": head_dim == CLAIM_HEAD_DIM,
        "holds_in": sum(judged),
        "judged": len(judged),
        "cases": cases,
    }


def sentence(claim, head_dim):
    """The verdict in words."""
    heads = "" if claim["is_about_this_head_dim"] else f" (here heads of {head_dim}, not of 64)"
    if not claim["judged"]:
        return f"«{claim['statement']}»: not judged, {CLAIM_DIRECTIONS} directions were not measured"
    judged = [case for case in claim["cases"] if case["holds"] is not None]
    kept = [case for case in judged if case["holds"]]
    trivial = sum(case["uniform_error"] < CLAIM_ERROR for case in kept)
    verdict = {0: "false", len(judged): "true"}.get(len(kept), "true in part")
    note = f", {trivial} of them with uniform attention as well" if trivial else ""
    worse = sum(case["error"]["mean"] >= case["uniform_error"] for case in judged)
    return (
        f"«{claim['statement']}»{heads}: {verdict}; it holds in {len(kept)} of {len(judged)} cases{note}; "
        f"in {worse} the error is no smaller than that of uniform attention"
    )


def _slope_between(fewer, before, more, after):
    return math.log(after / before) / math.log(more / fewer)


def _where(error, directions, mean, slope):
    """The number of directions at which the line through one point reaches the error; None if out of reach."""
    logarithm = math.log(directions) + math.log(error / mean) / slope
    return math.ceil(math.exp(logarithm)) if logarithm < math.log(TOO_MANY) else None

"""What the rows of zero_shot say: curves over the directions, how fast they fall, the best map, the best floor."""

from statistics import median

import numpy as np

MEASURES = ("distance", "divergence", "agreement", "perplexity", "bleu")
CURVE = ("sites", "map", "imitate", "floor", "updates")


def curves(rows):
    """One entry for each sites, map, way, floor and distillation that were measured with features.

    An entry has "points", fewest directions first, each with "directions" (None for a map that has none) and, for
    each measure, median, least and greatest value over the seeds; "limit", the distance and perplexity with endlessly
    many directions; and "slope" and "later_slope" of log distance over log directions.
    """
    found = {}
    for row in rows:
        case = row["case"]
        if case["kind"] in ("features", "limit"):
            entry = found.setdefault(tuple(case[name] for name in CURVE), {"points": {}, "limit": None})
            if case["kind"] == "limit":
                entry["limit"] = {name: row[name] for name in MEASURES if name in row}
                continue
            point = entry["points"].setdefault(case["directions"], {})
            for name in MEASURES:
                if name in row:
                    point.setdefault(name, []).append(row[name])
    return [
        _curve(dict(zip(CURVE, key)), entry["points"], entry["limit"])
        for key, entry in found.items()
        if entry["points"]
    ]


def _curve(entry, points, limit):
    points = [
        {"directions": directions, **{name: _spread(values) for name, values in points[directions].items()}}
        for directions in sorted(points, key=lambda directions: directions or 0)
    ]
    return {
        **entry,
        "points": points,
        "limit": limit,
        "slope": _slope(points),
        "later_slope": _slope(points[-max(2, len(points) // 2) :]),
    }


def _spread(values):
    return {"median": median(values), "least": min(values), "greatest": max(values)}


def _slope(points):
    """Of the line through log distance over log directions (least squares); None for fewer than 2 points."""
    if len(points) < 2:
        return None
    x, y = np.log([(point["directions"], point["distance"]["median"]) for point in points]).T
    return float(np.polyfit(x, y, 1)[0])


def last_distance(curve):
    """The median distance with the greatest number of directions."""
    return curve["points"][-1]["distance"]["median"]


def best(curves, sites, directions, way=None):
    """The curve with the least distance at a number of directions; None if there is none.

    Args:
        way: only of this way of imitation.
    """
    eligible = [
        curve
        for curve in curves
        if curve["sites"] == sites
        and curve["points"][-1]["directions"] == directions
        and way in (None, curve["imitate"])
    ]
    return min(eligible, key=last_distance, default=None)


def verdicts(report):
    """Sentences about what was measured."""
    sign, found = report["signature"], report["curves"]
    greatest = max(sign["directions"])
    lines = []
    for sites in sign["sites"]:
        for way in sign["imitate"]:
            curve = best(found, sites, greatest, way)
            if curve is not None:
                lines.append(_sentence_of_best(curve, way))
    for sites in sign["sites"]:
        lines += [_sentence_of_floor(*group) for group in _floors(found, sites, greatest)]
    return lines


def _sentence_of_best(curve, way):
    first, last = curve["points"][0], curve["points"][-1]
    text = (
        f"{curve['sites']}, {way}: {_name(curve)} is nearest to softmax at {last['directions']:,} directions, "
        f"distance {last_distance(curve):.3f}"
    )
    if first is not last:
        text += (
            f"; from {first['directions']} on ({first['distance']['median']:.3f}) it falls like "
            f"D^{curve['slope']:.2f}, over the later half like D^{curve['later_slope']:.2f}"
        )
    if curve["limit"]:
        text += f"; the limit is {curve['limit']['distance']:.2g}"
    return text


def _floors(found, sites, directions):
    """Curves that differ in the floor alone, at a number of directions."""
    groups = {}
    for curve in found:
        if curve["sites"] == sites and curve["floor"] is not None and curve["points"][-1]["directions"] == directions:
            if curve["updates"] is None:
                groups.setdefault((curve["map"], curve["imitate"]), []).append(curve)
    return [(name, way, group) for (name, way), group in groups.items() if len(group) > 1]


def _sentence_of_floor(name, way, group):
    chosen = min(group, key=last_distance)
    tried = ", ".join(
        f"{curve['floor']:g}: {last_distance(curve):.3f}"
        + (f" (limit {curve['limit']['distance']:.2g})" if curve["limit"] else "")
        for curve in group
    )
    return (
        f"{group[0]['sites']}, {way}, {name}: of the floors {tried}, {chosen['floor']:g} is best at "
        f"{chosen['points'][-1]['directions']:,} directions"
    )


def _name(curve):
    more = [] if curve["floor"] is None else [f"floor {curve['floor']:g}"]
    more += [] if curve["updates"] is None else ["distilled"]
    return curve["map"] + (f" ({', '.join(more)})" if more else "")

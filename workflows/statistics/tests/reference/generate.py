"""Writes reference.json: values that other programs compute, which `tests/reference.rs` compares with.

    python -m venv venv && venv/bin/pip install numpy scipy statsmodels 'pandas<3' arch absl-py
    venv/bin/pip install --no-deps rliable
    venv/bin/python generate.py > reference.json
"""

import json
import sys
from importlib.metadata import version

import numpy as np
import pandas as pd
import scipy
import statsmodels
from rliable import library, metrics
from scipy import integrate, stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower

A = [3.1, 4.4, 5.2, 6.9, 7.0]
B = [2.9, 4.0, 5.1, 6.2, 6.8, 9.9]
THIRD = [8.8, 9.1, 7.7, 10.4]
P = [0.01, 0.04, 0.03, 0.005, 0.2, 0.9, 0.011]
SCORES = [[0.1, 0.5, 0.9], [0.2, 0.4, 0.8], [0.3, 0.6, 0.7], [0.2, 0.5, 0.95]]
OTHERS = [[0.1, 0.3, 0.9], [0.1, 0.4, 0.6], [0.25, 0.7, 0.5]]
TAUS = [0.0, 0.25, 0.5, 0.75, 0.9]


def many_one(q, loadings, df, two):
    """The multivariate t of Dunnett's statistics by SciPy's adaptive quadrature."""
    loadings = np.array(loadings)
    spread = np.sqrt(1 - loadings**2)

    def given(z, s):
        upper = stats.norm.cdf((q * s + loadings * z) / spread)
        lower = stats.norm.cdf((loadings * z - q * s) / spread) if two else 0.0
        density = stats.chi.pdf(s * np.sqrt(df), df) * np.sqrt(df)
        return np.prod(upper - lower) * stats.norm.pdf(z) * density

    return integrate.dblquad(given, 0, 1 + 10 / np.sqrt(2 * df), -9, 9, epsabs=1e-7, epsrel=1e-7)[0]


def factorial():
    """An unbalanced 3 x 2 sweep in three blocks, one replicate missing."""
    noise = np.random.default_rng(5).normal(0, 0.05, 18).round(4)
    rows = []
    for states in range(3):
        for chunk in range(2):
            for block in range(3):
                value = 1 - 0.1 * states + 0.03 * chunk + 0.2 * block + noise[len(rows)]
                rows.append({"a": states, "b": chunk, "r": block, "y": round(float(value), 4)})
    rows.pop(4)
    frame = pd.DataFrame(rows)
    table = anova_lm(ols("y ~ C(a, Sum) * C(b, Sum) + C(r)", frame).fit(), typ=2)
    terms = {"a": "C(a, Sum)", "b": "C(b, Sum)", "ab": "C(a, Sum):C(b, Sum)"}
    return {
        "rows": rows,
        "f": {name: table.loc[term, "F"] for name, term in terms.items()},
        "p": {name: table.loc[term, "PR(>F)"] for name, term in terms.items()},
        "residual": [table.loc["Residual", "sum_sq"], table.loc["Residual", "df"]],
    }


def games_howell():
    found = stats.tukey_hsd(A, B, THIRD, equal_var=False)
    interval = found.confidence_interval(0.95)
    pairs = [(0, 1), (0, 2), (1, 2)]
    return [[found.statistic[i, j], found.pvalue[i, j], interval.low[i, j], interval.high[i, j]] for i, j in pairs]


def aggregates():
    scores, others = np.array(SCORES), np.array(OTHERS)
    return {
        "iqm": metrics.aggregate_iqm(scores),
        "median": metrics.aggregate_median(scores),
        "mean": metrics.aggregate_mean(scores),
        "gap": metrics.aggregate_optimality_gap(scores, 0.8),
        "improvement": metrics.probability_of_improvement(scores, others),
        "profile": [library.run_score_deviation(scores, tau) for tau in TAUS],
    }


half = [np.sqrt(0.5)]
ranges = [(3.0, 3, 10.0), (4.2, 5, 20.0), (1.5, 4, 2.5), (6.0, 30, 60.0)]
many = [
    (2.2, half * 4, 10.0), (2.6, half * 9, 20.0), (1.0, half * 2, 3.0), (2.5, [0.5, 0.6, 0.9], 12.0),
    (3.0, half * 29, 60.0),
]
fisher = [(3.2, 2, 10), (0.4, 5, 3), (25.0, 1, 60)]
noncentral = [(2.2, 4, 3.0), (1.5, 10, 0.5), (3.0, 60, 4.0), (6.0, 2, 2.0)]
dunnett = stats.dunnett(np.array(B), np.array(THIRD), control=np.array(A), random_state=1)
bartlett = stats.bartlett(A, B, THIRD)
json.dump(
    {
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__, "scipy": scipy.__version__,
                     "statsmodels": statsmodels.__version__, "rliable": version("rliable")},
        "groups": [A, B, THIRD],
        "p_values": P,
        "scores": SCORES,
        "others": OTHERS,
        "taus": TAUS,
        "fisher": [[f, a, b, stats.f.sf(f, a, b)] for f, a, b in fisher],
        "noncentral": [[t, df, shift, stats.nct.cdf(t, df, shift)] for t, df, shift in noncentral],
        "studentized_range": [[q, k, df, stats.studentized_range.cdf(q, k, df)] for q, k, df in ranges],
        "many_one": [[q, l, df, many_one(q, l, df, False), many_one(q, l, df, True)] for q, l, df in many],
        "dunnett": dunnett.pvalue.tolist(),
        "brown_forsythe": stats.levene(A + [6.1], B, THIRD + [8.0, 8.5], center="median").pvalue,
        "bartlett": bartlett.pvalue,
        "games_howell": games_howell(),
        "factorial": factorial(),
        "power": [[n, TTestIndPower().power(1.5, n, 0.05)] for n in (5, 12, 30)],
        "holm": multipletests(P, method="holm")[1].tolist(),
        "benjamini_hochberg": multipletests(P, method="fdr_bh")[1].tolist(),
        "permutation": stats.permutation_test(
            (A, B), lambda x, y: abs(np.mean(x) - np.mean(y)), n_resamples=np.inf, alternative="greater").pvalue,
        "bca_deviation": list(stats.bootstrap(
            (np.array(B + THIRD),), np.std, method="BCa", n_resamples=100_000, rng=1).confidence_interval),
        "rliable": aggregates(),
    },
    sys.stdout,
    indent=1,
)
print()

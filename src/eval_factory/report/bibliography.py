"""The sources that a text cites, numbered in the order in which they are first cited."""

from __future__ import annotations

SOURCES = {
    "helm": "P. Liang et al., Holistic Evaluation of Language Models, TMLR, 2023, arXiv:2211.09110",
    "medhelm": "S. Bedi et al., MedHELM: Holistic Evaluation of Large Language Models for Medical Tasks, 2025,"
    " arXiv:2505.23802",
    "healthbench": "R. K. Arora et al., HealthBench: Evaluating Large Language Models Towards Improved Human Health,"
    " 2025, arXiv:2505.08775",
    "mmlu_pro": "Y. Wang et al., MMLU-Pro, NeurIPS, 2024, arXiv:2406.01574",
    "wilson": "E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22:209-212,"
    " 1927",
    "korn": "E. L. Korn and B. I. Graubard, Confidence intervals for proportions with small expected number of positive"
    " counts estimated from survey data, Survey Methodology 24:193-201, 1998",
    "student": "Student, The probable error of a mean, Biometrika 6:1-25, 1908",
    "agresti": "A. Agresti and B. A. Coull, Approximate is better than exact for interval estimation of binomial"
    " proportions, The American Statistician 52:119-126, 1998",
    "liang_zeger": "K.-Y. Liang and S. L. Zeger, Longitudinal data analysis using generalized linear models,"
    " Biometrika 73:13-22, 1986",
    "clopper": "C. J. Clopper and E. S. Pearson, The use of confidence or fiducial limits illustrated in the case of"
    " the binomial, Biometrika 26:404-413, 1934",
    "efron": "B. Efron, Better bootstrap confidence intervals, JASA 82:171-185, 1987",
    "holm": "S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics"
    " 6:65-70, 1979",
    "krippendorff": "K. Krippendorff, Content Analysis: An Introduction to Its Methodology, Sage, 2004",
    "kish": "L. Kish, Survey Sampling, Wiley, 1965",
    "tripod_llm": "J. Gallifant et al., The TRIPOD-LLM reporting guideline for studies using large language models,"
    " Nature Medicine 31:60-69, 2025, doi:10.1038/s41591-024-03425-5",
}


class Citations:
    """Numbers sources as they are cited."""

    def __init__(self, form: str = "[{}]") -> None:
        self._form = form
        self._cited: list[str] = []

    def __call__(self, *names: str) -> str:
        """The numbers of these sources in the form: `[1]`, `[1, 3]`. Raises KeyError where there is no such source."""
        for name in names:
            SOURCES[name]
            if name not in self._cited:
                self._cited.append(name)
        return self._form.format(", ".join(str(self._cited.index(name) + 1) for name in names))

    def listed(self) -> list[str]:
        """Each source that was cited, in the order of the numbers."""
        return [f"{SOURCES[name]}." for name in self._cited]

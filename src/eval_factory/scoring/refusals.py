"""Answers that decline to answer, told by how they begin."""

from __future__ import annotations

import re

LONGEST_REFUSAL = 400
"""Characters. What goes on for longer says something beside: that it is no physician, and then what to do."""

_APOLOGY = r"(?:(?:i'm|i am)\s+(?:very\s+|so\s+)?sorry|sorry|(?:my\s+)?apologies|i\s+apologi[sz]e|unfortunately)"
_NATURE = r"as\s+an?\s+(?:ai|(?:large\s+)?language model)(?:\s+(?:language\s+)?(?:model|assistant))?"
_CANNOT = r"(?:can(?:no|')t|can\s+not|won't|will\s+not|(?:must\s+|have\s+to\s+)?decline)"
_UNABLE = r"(?:am|'m)\s+(?:unable|not\s+able|not\s+allowed|not\s+comfortable)"
_REFUSED = (
    r"(?:help|assist|answer|provid|respond|compl[yie]|fulfil|discuss|giv|offer|generat|creat|diagnos|continu|engag"
    r"|do\s+(?:that|this)|shar|support|process|determin|make|advis|interpret)"
)
_ENGLISH = rf"(?:but\s+)?i(?:\s+{_CANNOT}|\s*{_UNABLE})\s+(?:to\s+)?{_REFUSED}"

_APOLOGIES = (
    r"(?:es\s+)?tut\s+mir\s+(?:sehr\s+)?leid|entschuldigung|entschuldige(?:n\s+sie)?|leider|ich\s+bedaure"
    r"|lo\s+(?:siento|lamento)(?:\s+mucho)?|lamentablemente|desafortunadamente|disculp[ae]|perdón"
    r"|(?:sinto|lamento)(?:\s+muito)?|desculpe|infelizmente|peço\s+desculpas?"
    r"|(?:je\s+suis\s+)?(?:vraiment\s+)?désolée?|malheureusement|je\s+regrette|je\s+m'excuse"
)
_NATURES = (
    r"(?:als|como|en\s+tant\s+qu(?:e\s+|'))\s*[^,.;:!?\n]{0,50}?"
    r"(?:KI|IA|sprachmodell|modelo|modèle|asistente|assistente|assistant)(?:\s+\w+){0,4}?"
)
_GERMAN = (
    r"(?:aber\s+)?(?:(?:ich\s+)?(?:kann|darf|werde|möchte)\s+(?:ich\s+)?(?:\S+\s+){0,8}?(?:nicht|kein\w*)\s+(?:\S+\s+){0,8}?"
    r"(?:helfen|beantwort|antworten|geben|stellen|bereitstell|unterstütz|weiterhelfen|beurteil|erteil|diagnos|behilflich)"
    r"|ich\s+bin\s+nicht\s+in\s+der\s+lage)"
)
_ROMANCE = (
    r"(?:pero\s+|mas\s+|mais\s+)?(?:yo\s+|eu\s+)?(?:(?:no|não)\s+(?:me\s+)?(?:es\s+posible|puedo|posso|consigo|est(?:oy|ou)"
    r"(?:\s+e[nm]\s+condi[cç][a-zõ]+\s+de)?)"
    r"|je\s+ne\s+(?:peux|puis|suis|saurais)(?:\s+(?:malheureusement|pas|en\s+mesure|capable)){0,3})"
    r"\s+(?:(?:de|d'|te|le|lhe|vous)\s*)?"
    r"(?:ayud|respond|contest|proporcion|brind|d(?:ar|onn)|ofrec|ofer[et]|hac|faz|cumpl|asist|ajud|aid|répond|fourn|forne|assist"
    r"|diagn|d[eé]termin|interpr[eé]t)"
)
_REFUSAL = re.compile(
    rf"(?:(?:{_APOLOGY}|{_NATURE}|{_APOLOGIES}|{_NATURES})[,.;:!]?\s+){{0,2}}(?:{_ENGLISH}|{_GERMAN}|{_ROMANCE})",
    re.IGNORECASE,
)


def is_refusal(answer: str) -> bool:
    """Whether an answer begins by declining, in English, German, Spanish, Portuguese or French, and says no more."""
    text = answer.strip().strip("\"'*").replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return len(text) <= LONGEST_REFUSAL and _REFUSAL.match(text) is not None

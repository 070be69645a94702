"""Privacy: what of the application's texts, metadata and ids may leave the process, and in which form."""

from rageval_hooks.privacy.policy import NO_PRIVACY, REDACTED, PrivacyPolicy, Redact
from rageval_hooks.privacy.redactor import PatternRedactor

__all__ = ["NO_PRIVACY", "REDACTED", "PatternRedactor", "PrivacyPolicy", "Redact"]

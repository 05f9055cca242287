"""The text fields of a ``multipart/form-data`` body; what uploads files comes in this form."""

from __future__ import annotations

from email.parser import BytesParser
from email.policy import HTTP

__all__ = ["text_fields"]


def text_fields(content_type: str, body: bytes) -> dict[str, object]:
    """Return the fields that are no files; empty for what is no multipart body."""
    head = f"content-type: {content_type}\r\n\r\n".encode("latin-1")
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    fields: dict[str, object] = {}
    for part in message.iter_parts() if message.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        if isinstance(name, str) and part.get_filename() is None:
            payload = part.get_payload(decode=True)
            fields[name] = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    return fields

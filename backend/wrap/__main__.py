"""``python -m backend.wrap -- CMD...``, and the entry of watchkeeper-wrap.pyz."""

from __future__ import annotations

from backend.wrap.wrap import main

if __name__ == "__main__":
    main()

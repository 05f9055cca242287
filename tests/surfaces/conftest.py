from stories.conftest import authority, driver, gateway, leaves_nothing, says_nothing, warm

__all__ = ["authority", "driver", "gateway", "leaves_nothing", "says_nothing", "warm"]

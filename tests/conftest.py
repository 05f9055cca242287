from support import http_library

http_library.use()

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace draftscope {

struct HttpOptions {
    std::string url;                       ///< of the server, "http://127.0.0.1:8080"
    std::vector<std::string> headers;      ///< "Name: value", sent with every request
    double timeout_s = 60;                 ///< an answer without a new byte for so long is given up
    std::function<bool()> cancelled = {};  ///< asked several times a second
};

/// Speaks HTTP to one server, over TLS for https. Follows no redirects and uses no proxy: it talks to the
/// address that it is given and to no other.
class HttpClient {
  public:
    /// An address that is none, or a build without network, is bad_input.
    static Result<std::unique_ptr<HttpClient>> create(HttpOptions options);
    virtual ~HttpClient() = default;
    /// Returns the body of the answer. A status of 400 and more is bad_input, with the server's words.
    virtual Result<std::string> get(const std::string& path) = 0;
    virtual Result<std::string> post(const std::string& path, const std::string& body) = 0;
    /// Posts JSON and passes on the bytes of the answer as they come. What came before an error was passed
    /// on.
    virtual Status post(const std::string& path, const std::string& body,
                        const std::function<Status(std::string_view bytes)>& receive) = 0;
    /// Returns whether the last request was answered with a status of 300 and more.
    virtual bool was_refused() const = 0;
};

}  // namespace draftscope

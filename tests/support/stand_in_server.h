#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace draftscope::testing {

/// An HTTP server on the loopback device, for tests: one connection after another, one request each.
class StandInServer {
  public:
    struct Request {
        std::string method, path, headers, body;
    };
    struct Answer {
        int status = 200;
        std::vector<std::string> pieces;  ///< of the body, sent one by one
        bool hangs = false;               ///< after the pieces, until the client goes away
        std::string header = {};          ///< a further line, such as "Location: /other"
    };
    explicit StandInServer(std::function<Answer(const Request&)> answer);
    ~StandInServer();
    StandInServer(const StandInServer&) = delete;
    StandInServer& operator=(const StandInServer&) = delete;

    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    /// Requests so far. Call it when no request is under way.
    const std::vector<Request>& requests() const { return requests_; }

  private:
    void serve();
    void answer_one(int socket);

    std::function<Answer(const Request&)> answer_;
    std::vector<Request> requests_;
    std::atomic<bool> done_{false};
    int listener_ = -1, port_ = 0;
    std::thread thread_;
};

}  // namespace draftscope::testing

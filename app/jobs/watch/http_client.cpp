#include "app/jobs/watch/http_client.h"

#include <algorithm>
#include <cmath>
#include <optional>

#ifdef DRAFTSCOPE_NET
#include <curl/curl.h>
#endif

namespace draftscope {

#ifdef DRAFTSCOPE_NET
namespace {

/// The beginning of a refused answer, for the message.
constexpr std::size_t max_words = 400;

class CurlClient final : public HttpClient {
  public:
    explicit CurlClient(HttpOptions options) : options_(std::move(options)), curl_(curl_easy_init()) {
        while (options_.url.ends_with('/')) options_.url.pop_back();
        for (const std::string& one : options_.headers) add_header(one);
        add_header("Content-Type: application/json");
        add_header("Expect:");  // no wait for "100 Continue"
    }
    ~CurlClient() override {
        curl_slist_free_all(headers_);
        curl_easy_cleanup(curl_);
    }
    CurlClient(const CurlClient&) = delete;
    CurlClient& operator=(const CurlClient&) = delete;

    Result<std::string> get(const std::string& path) override { return collect(path, std::nullopt); }
    Result<std::string> post(const std::string& path, const std::string& body) override {
        return collect(path, body);
    }
    Status post(const std::string& path, const std::string& body,
                const std::function<Status(std::string_view)>& receive) override {
        return send(path, body, receive);
    }

    bool was_refused() const override { return status() >= 300; }

  private:
    long status() const {
        long status = 0;
        curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
        return status;
    }
    /// An answer that is being received.
    struct Answer {
        CurlClient& client;
        const std::function<Status(std::string_view)>& receive;
        std::string refused = {};  ///< body of an error
        Status status = {};        ///< of the receiver
    };

    void add_header(const std::string& line) { headers_ = curl_slist_append(headers_, line.c_str()); }

    Result<std::string> collect(const std::string& path, const std::optional<std::string>& body) {
        std::string out;
        const std::function<Status(std::string_view)> append = [&](std::string_view bytes) {
            out.append(bytes);
            return Status();
        };
        DS_TRY(send(path, body, append));
        return out;
    }

    Status send(const std::string& path, const std::optional<std::string>& body,
                const std::function<Status(std::string_view)>& receive) {
        if (curl_ == nullptr) return failed("the HTTP library does not start");
        const std::string url = options_.url + path;
        Answer answer{*this, receive};
        curl_easy_reset(curl_);
        curl_easy_setopt(curl_, CURLOPT_URL, url.c_str());
        curl_easy_setopt(curl_, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(curl_, CURLOPT_PROXY, "");
        curl_easy_setopt(curl_, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, headers_);
        const auto seconds = std::max(1L, std::lround(std::ceil(options_.timeout_s)));
        curl_easy_setopt(curl_, CURLOPT_CONNECTTIMEOUT, seconds);
        curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_TIME, seconds);
        if (body) {
            curl_easy_setopt(curl_, CURLOPT_POSTFIELDS, body->data());
            curl_easy_setopt(curl_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
        }
        curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, &CurlClient::take);
        curl_easy_setopt(curl_, CURLOPT_WRITEDATA, &answer);
        curl_easy_setopt(curl_, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(curl_, CURLOPT_XFERINFOFUNCTION, &CurlClient::progress);
        curl_easy_setopt(curl_, CURLOPT_XFERINFODATA, this);
        return check(curl_easy_perform(curl_), url, answer);
    }

    Status check(CURLcode code, const std::string& url, const Answer& answer) const {
        if (!answer.status.ok()) return answer.status;
        if (options_.cancelled && options_.cancelled()) return Error{ErrorKind::cancelled, "cancelled"};
        if (code == CURLE_OPERATION_TIMEDOUT)
            return bad_input(
                "{}: no answer for {:g} s; give a longer --timeout, or look whether the server hangs", url,
                options_.timeout_s);
        if (code != CURLE_OK) return bad_input("{}: {}", url, curl_easy_strerror(code));
        if (!was_refused()) return {};
        return bad_input("{}: the server answers {}{}{}", url, status(), answer.refused.empty() ? "" : ": ",
                         answer.refused.substr(0, max_words));
    }

    static std::size_t take(char* bytes, std::size_t /*one*/, std::size_t count, void* data) {
        auto& answer = *static_cast<Answer*>(data);
        if (answer.client.was_refused()) {
            if (answer.refused.size() < max_words) answer.refused.append(bytes, count);
            return count;
        }
        answer.status = answer.receive({bytes, count});
        return answer.status.ok() ? count : 0;
    }

    static int progress(void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
        const auto& cancelled = static_cast<CurlClient*>(data)->options_.cancelled;
        return cancelled && cancelled() ? 1 : 0;
    }

    HttpOptions options_;
    CURL* curl_;
    curl_slist* headers_ = nullptr;
};

}  // namespace
#endif

Result<std::unique_ptr<HttpClient>> HttpClient::create(HttpOptions options) {
    if (!options.url.starts_with("http://") && !options.url.starts_with("https://"))
        return bad_input("{}: not an address; give one such as http://127.0.0.1:8080", options.url);
    if (!(options.timeout_s > 0) || options.timeout_s > 86400)
        return bad_input("--timeout {}: must be above 0 and at most 86400 seconds", options.timeout_s);
#ifdef DRAFTSCOPE_NET
    return std::unique_ptr<HttpClient>(std::make_unique<CurlClient>(std::move(options)));
#else
    return bad_input("{}: this build has no network; configure with -DDRAFTSCOPE_NET=ON", options.url);
#endif
}

}  // namespace draftscope

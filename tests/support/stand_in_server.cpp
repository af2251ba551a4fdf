#include "tests/support/stand_in_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>

namespace draftscope::testing {
namespace {

/// Returns whether the socket has something to read within the time.
bool wait_readable(int socket, int ms) {
    pollfd one{socket, POLLIN, 0};
    return poll(&one, 1, ms) > 0;
}

std::size_t body_length(const std::string& headers) {
    for (const char* name : {"Content-Length: ", "content-length: "})
        if (const std::size_t at = headers.find(name); at != std::string::npos)
            return std::strtoul(headers.c_str() + at + 16, nullptr, 10);
    return 0;
}

void send_all(int socket, const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
        const ssize_t count = send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (count <= 0) return;
        sent += static_cast<std::size_t>(count);
    }
}

}  // namespace

StandInServer::StandInServer(std::function<Answer(const Request&)> answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, generic, size) != 0 || listen(listener_, 8) != 0) std::abort();
    getsockname(listener_, generic, &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
}

StandInServer::~StandInServer() {
    done_ = true;
    thread_.join();
    close(listener_);
}

void StandInServer::serve() {
    while (!done_) {
        if (!wait_readable(listener_, 20)) continue;
        const int client = accept(listener_, nullptr, nullptr);
        if (client < 0) continue;
        answer_one(client);
        close(client);
    }
}

void StandInServer::answer_one(int socket) {
    std::string text;
    std::array<char, 4096> bytes{};
    std::size_t end = std::string::npos, wanted = 0;
    while (end == std::string::npos || text.size() < wanted) {
        if (!wait_readable(socket, 5000)) return;
        const ssize_t count = recv(socket, bytes.data(), bytes.size(), 0);
        if (count <= 0) return;
        text.append(bytes.data(), static_cast<std::size_t>(count));
        if (end == std::string::npos) end = text.find("\r\n\r\n");
        if (end != std::string::npos) wanted = end + 4 + body_length(text.substr(0, end));
    }
    Request request;
    request.headers = text.substr(0, end);
    request.body = text.substr(end + 4);
    const std::size_t space = text.find(' ');
    request.method = text.substr(0, space);
    request.path = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
    requests_.push_back(request);
    const Answer answer = answer_(request);
    std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " Test\r\nConnection: close\r\n";
    if (!answer.header.empty()) head += answer.header + "\r\n";
    send_all(socket, head + "\r\n");
    for (const std::string& piece : answer.pieces) {
        send_all(socket, piece);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    while (answer.hangs && !done_ && recv(socket, bytes.data(), 1, MSG_PEEK | MSG_DONTWAIT) != 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace draftscope::testing

#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

extern char** environ;

namespace draftscope {
namespace {

/// Passes the complete lines of `text` on and leaves the rest.
void pass_lines(std::string& text, FunctionRef<void(std::string_view)> on_line) {
    std::size_t first = 0;
    for (std::size_t end; (end = text.find('\n', first)) != std::string::npos; first = end + 1)
        on_line(std::string_view(text).substr(first, end - first));
    text.erase(0, first);
}

}  // namespace

Result<int> run_child_process(std::vector<std::string> words, FunctionRef<void(std::string_view)> on_line,
                              FunctionRef<bool()> stop) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return failed("cannot create a pipe to {}: {}", words[0], std::strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    const int started = posix_spawnp(&child, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (started != 0) {
        close(ends[0]);
        return bad_input("{}: cannot be started: {}", words[0], std::strerror(started));
    }
    std::string text;
    std::array<char, 4096> piece{};
    for (bool stopped = false;;) {
        if (!stopped && stop()) {
            stopped = true;
            kill(child, SIGTERM);
        }
        pollfd ready{ends[0], POLLIN, 0};
        if (poll(&ready, 1, 100) <= 0) continue;
        const ssize_t count = read(ends[0], piece.data(), piece.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        text.append(piece.data(), count);
        pass_lines(text, on_line);
    }
    if (!text.empty()) on_line(text);
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace draftscope

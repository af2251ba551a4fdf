#include "tests/gui/x11/desktop.h"

#include <poll.h>
#include <sys/prctl.h>

#include <chrono>
#include <sstream>
#include <thread>

namespace draftscope::test {

namespace fs = std::filesystem;
using draftscope::testing::read_text;

namespace {

constexpr std::chrono::seconds deadline{90};
constexpr std::chrono::milliseconds look_again{20};
constexpr int looks_at_rest = 15;

bool is_installed(const std::string& program) {
    std::stringstream folders(std::getenv("PATH") == nullptr ? "/usr/bin" : std::getenv("PATH"));
    for (std::string folder; std::getline(folders, folder, ':');)
        if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
    return false;
}

std::vector<std::string> split(const std::string& line) {
    std::vector<std::string> fields;
    std::stringstream text(line);
    for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
    return fields;
}

Box parse_box(const std::vector<std::string>& fields, std::size_t first) {
    return {std::stof(fields.at(first)), std::stof(fields.at(first + 1)), std::stof(fields.at(first + 2)),
            std::stof(fields.at(first + 3))};
}

Shown parse(const std::string& text) {
    Shown shown;
    std::stringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::vector<std::string> fields = split(line);
        if (fields.size() >= 7 && fields[0] == "window")
            shown.windows.push_back({fields[1], fields[2], parse_box(fields, 3)});
        else if (fields.size() >= 7 && fields[0] == "item")
            shown.items.push_back(
                {fields[1], fields[2], fields.size() > 7 ? fields[7] : "", parse_box(fields, 3)});
        else if (!fields.empty())
            shown.values[fields[0]] = fields.size() > 1 ? fields[1] : "";
    }
    return shown;
}

bool is_named(const std::string& label, const std::string& name) {
    const std::size_t id = label.find("###");
    return label == name || label.substr(0, label.find("##")) == name ||
           (id != std::string::npos && label.substr(id + 3) == name);
}

}  // namespace

std::pair<int, int> Box::at(float x, float y) const {
    return {static_cast<int>(left + x * width()), static_cast<int>(top + y * height())};
}

std::string Shown::value(const std::string& name) const {
    const auto found = values.find(name);
    return found == values.end() ? "" : found->second;
}

long Shown::number(const std::string& name) const {
    const std::string text = value(name);
    return text.empty() ? -1 : std::stol(text);
}

const Shown::Window* Shown::window(const std::string& name) const {
    for (const Window& window : windows)
        if (window.name == name) return &window;
    return nullptr;
}

const Shown::Item* Shown::item(const std::string& label, const std::string& window) const {
    for (const Item& item : items)
        if (item.window.rfind(window, 0) == 0 && is_named(item.label, label)) return &item;
    return nullptr;
}

bool Shown::has_window_of_kind(const std::string& kind) const {
    return std::any_of(windows.begin(), windows.end(), [&](const auto& w) { return w.kind == kind; });
}

Desktop::Desktop() : config_(folder_.file("config")), state_file_(folder_.file("state")) {}

Desktop::~Desktop() {
    if (HasFailure() && program_ >= 0) {
        take_picture("failed");
        std::cerr << "stderr of the program:\n" << read_text(folder_.file("gui.log")) << "\n";
    }
    end(program_, SIGTERM);
    end(server_, SIGTERM);
}

void Desktop::SetUp() {
    for (const auto& [program, package] : {std::pair{"Xvfb", "xvfb"}, {"xdotool", "xdotool"}})
        ASSERT_TRUE(is_installed(program))
            << program << " is not installed. On Debian: apt-get install " << package;
    display_ = start_server();
    ASSERT_FALSE(display_.empty()) << "Xvfb did not start:\n" << read_text(folder_.file("xvfb.log"));
}

void Desktop::environment() const {
    setenv("XDG_CONFIG_HOME", config_.c_str(), 1);
    setenv("XDG_STATE_HOME", folder_.file("state_home").c_str(), 1);
    setenv("DRAFTSCOPE_GUI_STATE", state_file_.c_str(), 1);
    setenv("DRAFTSCOPE_WEIGHT_CACHE", "off", 1);  // keep the user's XDG_CACHE_HOME, which holds models
    setenv("LIBGL_ALWAYS_SOFTWARE", "1", 1);
    unsetenv("WAYLAND_DISPLAY");
}

pid_t Desktop::spawn(const std::vector<std::string>& words, const std::string& log, bool with_display) const {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = open(folder_.file(log).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    environment();
    if (with_display) setenv("DISPLAY", display_.c_str(), 1);
    execvp(argv[0], argv.data());
    _exit(127);
}

/// Starts the server, which chooses and returns a free display.
std::string Desktop::start_server() {
    int ends[2];
    if (pipe(ends) != 0) return "";
    server_ = spawn({"Xvfb", "-displayfd", std::to_string(ends[1]), "-screen", "0", "1600x1000x24",
                     "-nolisten", "tcp", "-noreset"},
                    "xvfb.log", false);
    close(ends[1]);
    std::string number;
    pollfd ready{ends[0], POLLIN, 0};
    const auto until = std::chrono::steady_clock::now() + deadline;
    while (number.find('\n') == std::string::npos && std::chrono::steady_clock::now() < until) {
        if (poll(&ready, 1, 1000) <= 0) continue;
        char bytes[16];
        const ssize_t count = read(ends[0], bytes, sizeof(bytes));
        if (count <= 0) break;
        number.append(bytes, static_cast<std::size_t>(count));
    }
    close(ends[0]);
    const std::size_t end = number.find('\n');
    if (end == std::string::npos) return "";
    number.resize(end);
    number.insert(number.begin(), ':');
    return number;
}

void Desktop::end(pid_t& pid, int signal) {
    if (pid < 0) return;
    kill(pid, signal);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (waitpid(pid, nullptr, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > until) kill(pid, SIGKILL);
        std::this_thread::sleep_for(look_again);
    }
    pid = -1;
}

void Desktop::start(std::vector<std::string> arguments) {
    end(program_, SIGTERM);
    fs::remove(state_file_);
    std::vector<std::string> words = {std::string(DS_BINARY_DIR) + "/draftscope", "gui"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    program_ = spawn(words, "gui.log", true);
    wait_until("the window shows its panels", [](const Shown& s) {
        return s.value("ready") == "1" && s.window("draft_tree") != nullptr && s.number("frame") > 3;
    });
}

int Desktop::wait_for_end() {
    int status = 0;
    const bool ended = wait_for("the program ends", [&] { return waitpid(program_, &status, WNOHANG) != 0; });
    if (!ended) return -1;
    program_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Desktop::kill_program() {
    end(program_, SIGKILL);
}

bool Desktop::is_running() const {
    siginfo_t info{};
    return program_ >= 0 &&
           waitid(P_PID, static_cast<id_t>(program_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

Shown Desktop::shown() const {
    return parse(read_text(state_file_));
}

bool Desktop::wait_for(const std::string& what, const std::function<bool()>& condition) {
    if (HasFailure()) return false;  // after a failure, further waits would time out
    const auto until = std::chrono::steady_clock::now() + deadline;
    while (std::chrono::steady_clock::now() < until) {
        if (condition()) return true;
        std::this_thread::sleep_for(look_again);
    }
    ADD_FAILURE() << "timed out waiting until " << what;
    return false;
}

bool Desktop::wait_until(const std::string& what, const Condition& condition) {
    return wait_for(what, [&] { return condition(shown()) || (program_ >= 0 && !is_running()); }) &&
           condition(shown());
}

std::optional<Shown::Item> Desktop::find(const std::string& label, const std::string& window) {
    std::optional<Shown::Item> found;
    long frame = 0;
    int looks = 0;
    const auto at_rest = [&](const Shown& now) {
        const Shown::Item* item = now.item(label, window);
        if (item == nullptr) return false;
        const bool same = found && found->box.left == item->box.left && found->box.top == item->box.top;
        if (!same) {
            found = *item;
            frame = now.number("frame");
            looks = 0;
        }
        // Without changes there are no new frames.
        return now.number("frame") >= frame + 2 || ++looks >= looks_at_rest;
    };
    const std::string what = "'" + label + "' does not move" + (window.empty() ? "" : " in " + window);
    if (!wait_for(what, [&] { return at_rest(shown()); })) return std::nullopt;
    return found;
}

void Desktop::xdotool(const std::vector<std::string>& words) {
    std::vector<std::string> all = {"xdotool"};
    all.insert(all.end(), words.begin(), words.end());
    pid_t pid = spawn(all, "xdotool.log", true);
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0) << "xdotool " << words.front() << ":\n" << read_text(folder_.file("xdotool.log"));
}

void Desktop::point(int x, int y) {
    xdotool({"mousemove", std::to_string(x), std::to_string(y)});
}

void Desktop::click(const std::string& label, const std::string& window) {
    const auto item = find(label, window);
    if (!item) return;
    const auto [x, y] = item->box.at(0.5f, 0.5f);
    xdotool({"mousemove", std::to_string(x), std::to_string(y), "click", "1"});
}

void Desktop::resize(int width, int height) {
    xdotool({"search", "--onlyvisible", "--class", "draftscope", "windowsize", std::to_string(width),
             std::to_string(height)});
}

void Desktop::take_picture(const std::string& name) {
    const char* folder = std::getenv("DRAFTSCOPE_X11_PICTURES");
    if (folder == nullptr) return;
    usleep(500'000);  // the state is written before its frame is on the screen
    const std::string path = std::string(folder) + "/" + name + ".png";
    pid_t pid = spawn({"import", "-window", "root", path}, "import.log", true);
    waitpid(pid, nullptr, 0);
}

void Desktop::write_settings(const std::string& json) const {
    fs::create_directories(config_ + "/draftscope");
    draftscope::testing::write_text(config_file("settings.json"), json);
}

std::string Desktop::capture() {
    const std::string path = folder_.file("run.dscope");
    const auto done = testing::run(
        folder_, {"run", "--model", model(), "--drafter", "ngram", "--prompt", "hello you, hello you",
                  "--ignore-eos", "--max-new", "30", "--save", path, "--quiet"});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return path;
}

}  // namespace draftscope::test

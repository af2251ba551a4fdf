#include "storage/import/import_rounds.h"

#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/did_you_mean.h"
#include "capture/collected_capture.h"
#include "storage/import/round_lines.h"

namespace draftscope {

namespace {

using storage::RoundsFormat;

constexpr std::size_t detected_bytes = 1 << 20;  ///< in which a file must show its format

const RoundsFormat* find_format(std::string_view line) {
    for (const RoundsFormat& format : storage::rounds_formats())
        if (format.matches(line)) return &format;
    return nullptr;
}

std::vector<std::string_view> format_names() {
    std::vector<std::string_view> names;
    for (const RoundsFormat& format : storage::rounds_formats()) names.push_back(format.name);
    return names;
}

/// Removes the first line from `text` and returns it; absent without a line end.
std::optional<std::string_view> take_line(std::string_view& text) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

class Importer : public RoundsImport, private storage::RoundsSink {
  public:
    Importer(RoundsOptions options, RecordSink& sink)
        : options_(std::move(options)), lines_(options_, sink, report_) {}

    void begin(const std::string& name) override {
        name_ = name;
        number_ = named_ = 0;
        before_bytes_ = 0;
        reader_.reset();
        rest_.clear();
        before_.clear();
        lines_.next_file();
        for (const RoundsFormat& format : storage::rounds_formats())
            if (format.name == options_.format) reader_ = format.make();
    }

    Status read(std::string_view bytes) override {
        rest_ += bytes;
        std::string_view text = rest_;
        while (const auto line = take_line(text)) DS_TRY(read_line(*line));
        rest_.erase(0, rest_.size() - text.size());
        return {};
    }

    Status end() override {
        const std::string last = std::exchange(rest_, {});
        if (!last.empty()) DS_TRY(read_line(last));
        if (!reader_) return unknown_file();
        reader_->finish(*this);
        return status_;
    }

    Result<RoundsReport> finish() override {
        if (!kept_.is_null()) note("one scrape has totals since the server's start; give a second as well");
        lines_.end_run();
        if (report_.rounds > 0) return report_;
        return bad_input("{}: no round was found{}{}", name_, report_.notes.empty() ? "" : "; ",
                         report_.notes.empty() ? "" : report_.notes.front());
    }

  private:
    /// Keeps lines until one shows the format.
    Status read_line(std::string_view line) {
        if (!reader_) {
            if (const RoundsFormat* format = find_format(line)) {
                reader_ = format->make();
                for (const std::string& earlier : std::exchange(before_, {})) pass(earlier);
            } else {
                before_.emplace_back(line);
                before_bytes_ += line.size();
                return before_bytes_ <= detected_bytes ? Status() : unknown_file();
            }
        }
        pass(line);
        return status_;
    }
    void pass(std::string_view line) {
        ++number_;
        if (status_.ok()) reader_->read(line, *this);
    }
    Status unknown_file() const {
        return bad_input("{}: no known format of rounds; known are {} (--format NAME)", name_,
                         known_rounds_formats());
    }

    void add(const nlohmann::json& line) override {
        if (line.contains("dsrounds")) {
            if (Status begun = lines_.begin_run(line); !begun.ok() && status_.ok())
                status_ = bad_input("{}:{}: {}", name_, number_, begun.error().message);
        } else if (const std::string why = lines_.add(line); !why.empty()) {
            refuse(why);
        }
    }
    void refuse(const std::string& why) override {
        lines_.note(fmt::format("{}:{}: {}; left out", name_, number_, why), true);
    }
    void note(const std::string& text) override {
        lines_.note(fmt::format("{}:{}: {}", name_, number_, text), false);
    }
    std::string next_request() override {
        const std::string stem = std::filesystem::path(name_).stem().string();
        return ++named_ == 1 ? stem : fmt::format("{}#{}", stem, named_);
    }
    nlohmann::json& kept() override { return kept_; }

    RoundsOptions options_;
    RoundsReport report_;
    storage::RoundLines lines_;
    std::string name_, rest_;
    std::int64_t number_ = 0;  ///< of the current line
    std::unique_ptr<storage::RoundsReader> reader_;
    std::vector<std::string> before_;  ///< lines before the format was known
    std::size_t before_bytes_ = 0;
    int named_ = 0;  ///< requests of the file
    nlohmann::json kept_;
    Status status_;
};

}  // namespace

std::unique_ptr<RoundsImport> RoundsImport::create(RoundsOptions options, RecordSink& sink) {
    return std::make_unique<Importer>(std::move(options), sink);
}

std::string known_rounds_formats() {
    return fmt::format("{}", fmt::join(format_names(), ", "));
}

Status check_rounds_format(const std::string& format) {
    const std::vector<std::string_view> names = format_names();
    for (const std::string_view name : names)
        if (format.empty() || name == format) return {};
    return bad_input("--format {}: unknown; known are {}{}", format, known_rounds_formats(),
                     did_you_mean(format, names));
}

bool is_rounds_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string head(detected_bytes, '\0');
    head.resize(file.read(head.data(), detected_bytes).gcount());
    if (head.find('\0') != std::string::npos) return false;               // a database
    if (head.find("\"traceEvents\"") != std::string::npos) return false;  // a timeline
    head += '\n';
    std::string_view rest = head;
    while (const auto line = take_line(rest))
        if (find_format(*line) != nullptr) return true;
    return false;
}

Status read_rounds_files(RoundsImport& import, const std::vector<std::string>& paths) {
    std::array<char, 1 << 16> bytes{};
    for (const std::string& path : paths) {
        std::ifstream file(path, std::ios::binary);
        if (!file) return bad_input("{}: can't be opened", path);
        import.begin(path);
        while (file.read(bytes.data(), bytes.size()), file.gcount() > 0)
            DS_TRY(import.read({bytes.data(), static_cast<std::size_t>(file.gcount())}));
        if (file.bad()) return bad_input("{}: can't be read", path);
        DS_TRY(import.end());
    }
    return {};
}

Result<std::shared_ptr<const Snapshot>> import_rounds(const std::string& path, RoundsReport* report) {
    CollectedCapture sink;
    sink.capture.set_source(path);
    const auto import = RoundsImport::create({}, sink);
    DS_TRY(read_rounds_files(*import, {path}));
    DS_ASSIGN(RoundsReport found, import->finish());
    say_notes(found.notes);
    if (report != nullptr) *report = std::move(found);
    return sink.snapshot();
}

}  // namespace draftscope

// Reads Trace Event JSON as PyTorch's profiler (Kineto), Chrome and Perfetto's traceconv write it. Events are
// parsed one by one, so a damaged event costs itself only and a large file needs memory for its text only.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <streambuf>

#include "base/mapped_file.h"
#include "base/parse.h"
#include "storage/import/import_timeline.h"

namespace draftscope::storage {

namespace {

/// Times are decimal microseconds since 1970, to the nanosecond: more digits than a double holds.
using json =
    nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t, long double>;

Result<std::string> read_text(const std::string& path, Notes& notes) {
    gzFile file = gzopen(path.c_str(), "rb");  // reads uncompressed files, too
    if (file == nullptr) return bad_input("{}: can't be opened", path);
    std::string text;
    constexpr std::size_t piece = 1u << 20;
    int count = 0;
    do {
        const std::size_t size = text.size();
        text.resize(size + piece);
        count = gzread(file, text.data() + size, static_cast<unsigned>(piece));
        text.resize(size + (std::max(count, 0)));
    } while (count > 0);
    const bool whole = gzclose(file) == Z_OK && count == 0;
    if (!whole && text.empty()) return bad_input("{}: the compressed data is damaged or incomplete", path);
    if (!whole)
        add_note(notes, "{}: the compressed data is damaged or incomplete; its first part is read", path);
    return text;
}

std::int64_t number(const json& object, const char* key, std::int64_t otherwise = 0) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

std::string text(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Returns a process or thread as text; the format allows numbers and texts.
std::string id_text(const json& event, const char* key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_number_integer() ? found->dump() : text(event, key);
}

/// Formats [64, 1, 1] as "64,1,1".
std::string triple(const json& args, const char* key) {
    const auto found = args.find(key);
    if (found == args.end() || !found->is_array()) return {};
    std::string out;
    for (const json& value : *found)
        if (value.is_number_integer())
            out += (out.empty() ? "" : ",") + std::to_string(value.get<std::int64_t>());
    return out;
}

/// Returns the time in nanoseconds; absent if it is not a number that fits.
std::optional<TimeNs> time_ns(const json& event, const char* key) {
    constexpr long double max_us = 3e15L;  // the year 2065; sums of three fit
    const auto found = event.find(key);
    if (found == event.end() || !found->is_number()) return std::nullopt;
    const auto us = found->get<long double>();
    if (!(std::fabs(us) <= max_us)) return std::nullopt;
    return static_cast<TimeNs>(std::llround(us * 1e3L));
}

/// Categories of complete events that repeat others or are not ranges of the program.
bool is_ignored(const std::string& category) {
    return category == "python_function" || category == "Trace" || category == "overhead" ||
           category == "cuda_sync" || category == "ac2g" || category == "fwdbwd";
}

class EventReader {
  public:
    /// Takes over one event. Returns why it is skipped; "" if it is not.
    std::string event(json& event, std::size_t at) {
        const std::string kind = text(event, "ph");
        if (kind == "B" || kind == "E") return begin_or_end(event, at, kind == "B");
        async_ += kind == "b" || kind == "e" || kind == "S" || kind == "F" ? 1 : 0;
        if (kind != "X") return {};
        const std::optional<TimeNs> start = time_ns(event, "ts"), length = time_ns(event, "dur");
        if (!start) return "ts is not a time in microseconds";
        if (!length || *length < 0) return "dur is not a time in microseconds";
        take(event, *start, *start + *length);
        return {};
    }
    void skip(std::size_t at, std::string_view why) {
        if (trace_.skipped == 0)
            first_skipped_ = fmt::format("the first, at byte {}: {}", at, printable(why));
        ++trace_.skipped;
    }
    void about(const json& document) {
        trace_.product = "PyTorch profiler " + text(document, "schemaVersion");
    }
    void base(std::int64_t ns) { trace_.utc_ns = ns; }
    ImportedTimeline take_timeline(const std::string& path) {
        pair_ranges();
        trace_.kind = "kineto";
        if (trace_.skipped > 0)
            add_note(trace_.notes, "{}: skipped {} of its events; {}", path, trace_.skipped, first_skipped_);
        if (async_ > 0)
            add_note(trace_.notes, "{}: {} asynchronous events (ph b, e, S, F) are not read", path, async_);
        return std::move(trace_);
    }
    Notes& notes() { return trace_.notes; }

  private:
    struct Mark {
        TimeNs time;
        bool begin;
        std::size_t at;
        json event;  ///< of a begin
    };

    std::string begin_or_end(json& event, std::size_t at, bool begin) {
        const std::optional<TimeNs> time = time_ns(event, "ts");
        if (!time) return "ts is not a time in microseconds";
        std::vector<Mark>& marks = marks_[thread(event)];
        marks.push_back({*time, begin, at, begin ? std::move(event) : json()});
        return {};
    }
    /// Converts the begins and ends of each thread, which nest, to ranges.
    void pair_ranges() {
        for (auto& [thread, marks] : marks_) {
            std::stable_sort(marks.begin(), marks.end(),
                             [](const Mark& a, const Mark& b) { return a.time < b.time; });
            std::vector<const Mark*> open;
            for (const Mark& mark : marks) {
                if (mark.begin) {
                    open.push_back(&mark);
                } else if (open.empty()) {
                    skip(mark.at, "an end (ph E) without its begin");
                } else {
                    take(open.back()->event, open.back()->time, mark.time);
                    open.pop_back();
                }
            }
            for (const Mark* mark : open) skip(mark->at, "a begin (ph B) without its end");
        }
    }
    void take(const json& event, TimeNs start, TimeNs end) {
        static const json none = json::object();
        const auto found = event.find("args");
        const json& args = found != event.end() && found->is_object() ? *found : none;
        const std::string category = text(event, "cat");
        const std::string name = text(event, "name");
        if (category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset") {
            ImportedTimeline::Op op;
            op.row.name = name;
            op.row.stream = static_cast<int>(number(args, "stream", number(event, "tid")));
            op.row.start_ns = start;
            op.row.end_ns = end;
            op.row.grid = triple(args, "grid");
            op.row.block = triple(args, "block");
            op.row.bytes = number(args, "bytes");
            op.row.graph_node_id = number(args, "graph node id");
            op.correlation = number(args, "correlation");
            trace_.ops.push_back(std::move(op));
        } else if (category == "cuda_runtime" || category == "cuda_driver") {
            trace_.calls.push_back({name, thread(event), number(args, "correlation"), start, end});
        } else if (category == "gpu_user_annotation") {
            trace_.gpu_ranges.push_back(
                {category, name, number(args, "stream", number(event, "tid")), start, end, 0});
        } else if (!is_ignored(category)) {
            trace_.ranges.push_back({category, name, thread(event), start, end, 0});
        }
    }
    /// Numbers are kept where no other process has the same. Texts and others get free numbers.
    std::int64_t thread(const json& event) {
        const std::string tid = id_text(event, "tid");
        const auto [at, is_new] = threads_.try_emplace({id_text(event, "pid"), tid}, 0);
        if (!is_new) return at->second;
        std::int64_t id = parse_number<std::int64_t>(tid).value_or(1);
        while (!numbers_.insert(id).second) id = next_free_++;
        return at->second = id;
    }

    ImportedTimeline trace_;
    std::string first_skipped_;
    std::int64_t async_ = 0;
    std::map<std::int64_t, std::vector<Mark>> marks_;
    std::map<std::pair<std::string, std::string>, std::int64_t> threads_;
    std::set<std::int64_t> numbers_;
    std::int64_t next_free_ = 1;
};

/// Presents a text to the parser, which stops after a value, and tells where.
class CharacterStream : public std::streambuf {
  public:
    CharacterStream(std::string& text, std::size_t at) {
        setg(text.data(), text.data() + at, text.data() + text.size());
    }
    std::size_t position() const { return static_cast<std::size_t>(gptr() - eback()); }
};

constexpr std::string_view spaces = " \t\r\n\xEF\xBB\xBF";

char char_at(const std::string& text, std::size_t at) {
    return at < text.size() ? text[at] : '\0';
}
std::size_t skip_spaces(const std::string& text, std::size_t at) {
    return std::min(text.find_first_not_of(spaces, at), text.size());
}

/// Returns the end of a damaged event: the first brace after which another event or the array's end follows.
std::size_t end_of_damaged(const std::string& text, std::size_t at) {
    while ((at = text.find('}', at)) != std::string::npos) {
        std::size_t next = skip_spaces(text, ++at);
        if (char_at(text, next) == ']') return at;
        if (char_at(text, next) != ',') continue;
        next = skip_spaces(text, next + 1);
        if (char_at(text, next) == '{') return at;
    }
    return text.size();
}

/// Returns the parser's reason without its preamble: "invalid string: ill-formed UTF-8 byte".
std::string reason(const std::string& message) {
    const std::size_t first = message.find(" - ");
    const std::string_view why = std::string_view(message).substr(first == std::string::npos ? 0 : first + 3);
    return std::string(why.substr(0, why.find("; last read")));
}

/// Returns whether a bracket before `at` ends the events, not an array within a damaged one: the file ends,
/// or another member follows.
bool ends_array(const std::string& text, std::size_t at) {
    at = skip_spaces(text, at);
    if (char_at(text, at) == ',') return char_at(text, skip_spaces(text, at + 1)) == '"';
    if (char_at(text, at) == '}') at = skip_spaces(text, at + 1);
    return at == text.size();
}

/// Reads the events of the array whose first element is at `at`. Returns the position after the array.
std::size_t read_events(std::string& text, std::size_t at, EventReader& reader) {
    json event;
    for (;;) {
        at = text.find_first_of("{]", at);
        if (at == std::string::npos) return text.size();
        if (text[at] == ']') {
            if (ends_array(text, ++at)) return at;
            continue;
        }
        CharacterStream characters(text, at);
        std::istream stream(&characters);
        try {
            stream >> event;
            if (const std::string why = reader.event(event, at); !why.empty()) reader.skip(at, why);
            at = characters.position();
        } catch (const json::exception& error) {
            reader.skip(at, reason(error.what()));
            at = end_of_damaged(text, at);
        }
    }
}

}  // namespace

Result<ImportedTimeline> read_kineto(const std::string& path) {
    EventReader reader;
    DS_ASSIGN(std::string content, read_text(path, reader.notes()));
    // Events are elements of a bare array, or of member traceEvents.
    const std::size_t first = skip_spaces(content, 0);
    if (char_at(content, first) == '[') {
        read_events(content, first + 1, reader);  // its end may be absent
        return reader.take_timeline(path);
    }
    constexpr std::string_view member = "\"traceEvents\"";
    const std::size_t key = content.find(member);
    std::size_t at = key == std::string::npos ? key : skip_spaces(content, key + member.size());
    if (char_at(content, at) == ':') at = skip_spaces(content, at + 1);
    if (char_at(content, at) != '[')
        return bad_input("{}: JSON without traceEvents; is it a trace of PyTorch's profiler?", path);
    const std::size_t end = read_events(content, at + 1, reader);
    const std::string head = content.substr(0, at) + "[]";
    json document = json::parse(head + content.substr(end), nullptr, false);
    if (document.is_discarded()) {
        add_note(reader.notes(), "{}: what follows its events is damaged or cut off and is not read", path);
        document = json::parse(head + "}", nullptr, false);
    }
    if (document.is_discarded()) return reader.take_timeline(path);
    if (document.contains("schemaVersion")) reader.about(document);
    reader.base(number(document, "baseTimeNanoseconds"));
    return reader.take_timeline(path);
}

}  // namespace draftscope::storage

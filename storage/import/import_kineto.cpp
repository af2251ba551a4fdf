// Reads Trace Event JSON as PyTorch's profiler (Kineto) writes it. Events are converted and discarded during
// parsing, so a large file needs memory for its text only.
#include <zlib.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "storage/import/import_timeline.h"

namespace draftscope::storage {

namespace {

using nlohmann::json;

Result<std::string> read_text(const std::string& path) {
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
    if (!whole) return bad_input("{}: the compressed data is damaged or incomplete", path);
    return text;
}

std::int64_t number(const json& object, const char* key, std::int64_t otherwise = 0) {
    const auto found = object.find(key);
    if (found == object.end()) return otherwise;
    if (found->is_number()) return found->get<std::int64_t>();
    return otherwise;
}

std::string text(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Formats [64, 1, 1] as "64,1,1".
std::string triple(const json& args, const char* key) {
    const auto found = args.find(key);
    if (found == args.end() || !found->is_array()) return {};
    std::string out;
    for (const json& value : *found)
        if (value.is_number()) out += (out.empty() ? "" : ",") + std::to_string(value.get<std::int64_t>());
    return out;
}

class KinetoReader {
  public:
    void event(const json& event) {
        if (text(event, "ph") != "X") return;
        const auto ts = event.find("ts"), dur = event.find("dur");
        if (ts == event.end() || !ts->is_number() || dur == event.end() || !dur->is_number()) {
            ++trace_.skipped;
            return;
        }
        const TimeNs start = std::llround(ts->get<double>() * 1e3);
        const TimeNs length = std::llround(dur->get<double>() * 1e3);
        if (length < 0) {
            ++trace_.skipped;
            return;
        }
        static const json none = json::object();
        const auto found = event.find("args");
        const json& args = found != event.end() && found->is_object() ? *found : none;
        take(event, args, text(event, "cat"), start, start + length);
    }
    void about(const json& document) {
        trace_.product = "PyTorch profiler " + text(document, "schemaVersion");
    }
    ImportedTimeline take_timeline() {
        trace_.kind = "kineto";
        return std::move(trace_);
    }
    void base(std::int64_t ns) { trace_.utc_ns = ns; }
    bool seen() const { return seen_; }

  private:
    void take(const json& event, const json& args, const std::string& category, TimeNs start, TimeNs end) {
        seen_ = true;
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
        } else if (category == "user_annotation" || category == "cpu_op" || category == "nvtx" ||
                   category == "phase") {
            trace_.ranges.push_back({category, name, thread(event), start, end, 0});
        }
    }
    /// Numbers are kept. Names, which the format allows, are assigned numbers.
    std::int64_t thread(const json& event) {
        const auto found = event.find("tid");
        if (found != event.end() && found->is_number()) return found->get<std::int64_t>();
        const std::string name = found != event.end() && found->is_string() ? found->get<std::string>() : "";
        return threads_.try_emplace(name, static_cast<std::int64_t>(threads_.size()) + 1).first->second;
    }

    ImportedTimeline trace_;
    std::map<std::string, std::int64_t> threads_;
    bool seen_ = false;
};

}  // namespace

Result<ImportedTimeline> read_kineto(const std::string& path) {
    DS_ASSIGN(const std::string content, read_text(path));
    KinetoReader reader;
    // Events are at depth 1 of a bare array, or at depth 2 of the object form, in traceEvents.
    const std::size_t first = content.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    const int event_depth = first != std::string::npos && content[first] == '[' ? 1 : 2;
    std::string list;  // current member of the top-level object
    const auto on_parse = [&](int depth, json::parse_event_t what, json& value) {
        if (what == json::parse_event_t::key && depth == 1 && event_depth == 2)
            list = value.get<std::string>();
        if (what != json::parse_event_t::object_end || depth != event_depth) return true;
        if (event_depth == 2 && list != "traceEvents") return true;
        reader.event(value);
        return false;
    };
    const std::size_t skip = first == std::string::npos ? 0 : first;
    try {
        const json document =
            json::parse(content.begin() + static_cast<std::ptrdiff_t>(skip), content.end(), on_parse);
        if (event_depth == 2 && !document.contains("traceEvents"))
            return bad_input("{}: JSON without traceEvents; is it a trace of PyTorch's profiler?", path);
        if (document.is_object()) {
            if (document.contains("schemaVersion")) reader.about(document);
            reader.base(number(document, "baseTimeNanoseconds"));
        }
    } catch (const json::exception& error) {
        return bad_input("{}: not valid JSON: {}", path, error.what());
    }
    return reader.take_timeline();
}

}  // namespace draftscope::storage

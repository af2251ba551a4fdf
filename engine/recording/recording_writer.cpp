#include "engine/recording/recording_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace draftscope {
namespace {

namespace fs = std::filesystem;

/// Offset of the data. The header in front of it is written last, when the number of rows is known.
constexpr std::size_t header_bytes = 4096;

template <auto Values>
std::span<const std::byte> bytes_of(const RecordedRows& rows) {
    return std::as_bytes(std::span(rows.*Values));
}

}  // namespace

Result<std::unique_ptr<RecordingWriter>> RecordingWriter::create(const std::string& folder,
                                                                 RecordingInfo info, bool overwrite) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (!fs::is_directory(folder, error)) return bad_input("{}: cannot be created", folder);
    if (fs::exists(fs::path(folder) / "trace.json", error) && !overwrite)
        return bad_input(
            "{}: already contains a recording; name another folder or replace it with --overwrite", folder);
    info.rows = 0;
    info.prompts.clear();
    std::unique_ptr<RecordingWriter> writer(new RecordingWriter(folder, std::move(info)));
    DS_TRY(writer->open_streams());
    fs::remove(fs::path(folder) / "trace.json", error);
    return writer;
}

Status RecordingWriter::open_streams() {
    // The widest tensor is written directly to the final file, to which the others are appended at the end.
    const int aux = info_.aux_width();
    if (aux > 0) streams_.push_back({"aux", "BF16", 2, aux, bytes_of<&RecordedRows::aux>});
    streams_.push_back({"hidden", "BF16", 2, info_.target.hidden, bytes_of<&RecordedRows::hidden>});
    streams_.push_back({"topk_ids", "I32", 4, recording_topk, bytes_of<&RecordedRows::topk_ids>});
    streams_.push_back({"topk_logprobs", "F16", 2, recording_topk, bytes_of<&RecordedRows::topk_logprobs>});
    streams_.push_back({"tokens", "I32", 4, 0, bytes_of<&RecordedRows::tokens>});
    for (Stream& stream : streams_) {
        stream.path = file_path(&stream == streams_.data() ? "trace.safetensors"
                                                           : (std::string(stream.name) + ".part").c_str());
        stream.file = std::fopen(stream.path.c_str(), "w+b");
        if (stream.file == nullptr)
            return bad_input("{}: cannot be written: {}", stream.path, std::strerror(errno));
    }
    const std::vector<char> padding(header_bytes, 0);
    return write(streams_.front(), padding.data(), padding.size());
}

RecordingWriter::~RecordingWriter() {
    for (Stream& stream : streams_)
        if (stream.file != nullptr) std::fclose(stream.file);
    if (finished_) return;
    std::error_code ignored;
    for (const Stream& stream : streams_)
        if (!stream.path.empty()) fs::remove(stream.path, ignored);
}

Status RecordingWriter::write(Stream& stream, const void* data, std::size_t bytes) {
    if (bytes == 0 || std::fwrite(data, 1, bytes, stream.file) == bytes) return {};
    return failed("{}: {}", stream.path, std::strerror(errno));
}

Status RecordingWriter::append(RecordedPrompt prompt, std::int64_t index, const RecordedRows& rows) {
    const std::size_t n = prompt.rows();
    const bool fits = std::ranges::all_of(
        streams_, [&](const Stream& stream) { return stream.rows(rows).size() == n * stream.row_bytes(); });
    if (!fits || (info_.aux_width() == 0 && !rows.aux.empty()))
        return failed("recording: prompt {} has {} rows, but its tensors have other sizes", prompt.id, n);
    prompt.first_row = info_.rows;
    for (Stream& stream : streams_) {
        const std::span<const std::byte> bytes = stream.rows(rows);
        DS_TRY(write(stream, bytes.data(), bytes.size()));
    }
    info_.rows += prompt.rows();
    placed_.emplace_back(index, std::move(prompt));
    return {};
}

std::string RecordingWriter::header() const {
    nlohmann::ordered_json json;
    json["__metadata__"] = {{"format", "draftscope-trace"}};
    std::size_t offset = 0;
    for (const Stream& stream : streams_) {
        nlohmann::ordered_json shape = {info_.rows};
        if (stream.columns > 0) shape.push_back(stream.columns);
        const std::size_t end = offset + stream_bytes(stream);
        json[stream.name] = {{"dtype", stream.type}, {"shape", shape}, {"data_offsets", {offset, end}}};
        offset = end;
    }
    std::string text = json.dump();
    text.resize(header_bytes - sizeof(std::uint64_t), ' ');  // the format allows trailing spaces
    return text;
}

Status RecordingWriter::copy_into(std::FILE* out, Stream& from) {
    std::vector<char> buffer(std::size_t{1} << 20);
    if (std::fflush(from.file) != 0) return failed("{}: {}", from.path, std::strerror(errno));
    std::rewind(from.file);
    for (std::size_t left = stream_bytes(from); left > 0;) {
        const std::size_t part = std::min(left, buffer.size());
        if (std::fread(buffer.data(), 1, part, from.file) != part ||
            std::fwrite(buffer.data(), 1, part, out) != part)
            return failed("{}: copying {}: {}", streams_.front().path, from.path, std::strerror(errno));
        left -= part;
    }
    std::fclose(from.file);
    from.file = nullptr;
    std::error_code ignored;
    fs::remove(from.path, ignored);
    return {};
}

Status RecordingWriter::join() {
    Stream& joined = streams_.front();
    // Overwrites what a failed append left after the last complete turn.
    std::fseek(joined.file, static_cast<long>(header_bytes + stream_bytes(joined)), SEEK_SET);
    for (std::size_t i = 1; i < streams_.size(); ++i) DS_TRY(copy_into(joined.file, streams_[i]));
    const long end = std::ftell(joined.file);
    const std::string text = header();
    const std::uint64_t length = text.size();
    std::rewind(joined.file);
    DS_TRY(write(joined, &length, sizeof(length)));
    DS_TRY(write(joined, text.data(), text.size()));
    if (std::fflush(joined.file) != 0 || ::ftruncate(::fileno(joined.file), end) != 0 ||
        ::fsync(::fileno(joined.file)) != 0)
        return failed("{}: {}", joined.path, std::strerror(errno));
    return {};
}

Status RecordingWriter::finish() {
    if (placed_.empty()) return failed("{}: no prompt was recorded", folder_);
    DS_TRY(join());
    std::sort(placed_.begin(), placed_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [index, prompt] : placed_) info_.prompts.push_back(std::move(prompt));
    const std::string text = to_json_text(info_);
    const std::string path = file_path("trace.json"), temporary = path + ".part";
    std::FILE* file = std::fopen(temporary.c_str(), "wb");
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file == nullptr || (std::fclose(file) != 0) || !written)
        return failed("{}: {}", temporary, std::strerror(errno));
    std::error_code error;
    fs::rename(temporary, path, error);
    if (error) return failed("{}: {}", path, error.message());
    finished_ = true;
    return {};
}

}  // namespace draftscope

#include "app/jobs/run/run_file.h"

#include <filesystem>
#include <utility>

#include "app/jobs/run/earlier_runs.h"

namespace draftscope {
namespace {

void remove_capture(const std::string& path) {
    std::error_code ignored;
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix, ignored);
}

}  // namespace

Status RunFile::open() {
    WriterOptions options;
    options.overwrite = config_.overwrite || config_.resume;  // with --resume, only an empty file is replaced
    options.max_rows = config_.save_rows;
    options.max_bytes = static_cast<std::int64_t>(config_.save_size);
    options.file_full_policy = config_.save_ring ? FileFullPolicy::ring : FileFullPolicy::stop;
    options.queue_full_policy = config_.drop_when_full ? QueueFullPolicy::drop : QueueFullPolicy::wait;
    DS_ASSIGN(writer_, CaptureWriter::create(config_.save, options));
    writer_->set_unbounded_push();
    return {};
}

Status RunFile::prepare() {
    std::error_code ignored;
    const bool replaces = config_.overwrite && std::filesystem::exists(config_.save, ignored);
    const bool continues = config_.resume && !EarlierRuns::find(config_.save).empty();
    return config_.save.empty() || replaces || continues ? Status() : open();
}

Status RunFile::start() {
    if (config_.save.empty()) return {};  // the caller of the run may have attached a file of its own
    if (config_.resume && !writer_) DS_TRY(keep_earlier());
    if (!writer_) DS_TRY(open());
    recorder_.set_storage(writer_.get());
    started_ = attached_ = true;
    return {};
}

Status RunFile::keep_earlier() {
    const std::string kept = EarlierRuns::kept_name(config_.save);
    std::error_code error;
    if (EarlierRuns::find(config_.save) == kept) {
        remove_capture(config_.save);  // a copy that was not finished
    } else {
        std::filesystem::rename(config_.save, kept, error);
        if (error) return bad_input("{}: can't be renamed to {}: {}", config_.save, kept, error.message());
    }
    earlier_ = kept;
    return {};
}

void RunFile::release_earlier() {
    if (earlier_.empty()) return;
    recorder_.flush();
    if (!writer_->flush().ok()) return;  // the disk is full, for example: the earlier file stays
    remove_capture(earlier_);
    earlier_.clear();
}

void RunFile::close(RunReport& report) {
    if (std::exchange(attached_, false)) {
        recorder_.set_storage(nullptr);
        recorder_.flush();
    }
    if (!writer_) return;
    const Status closed = writer_->close();
    const std::string path = writer_->path();
    const WriterStats stats = writer_->stats();
    const bool kept = started_ && stats.rows > 0 && earlier_.empty();
    if (kept && writer_->owns_name()) report.capture = path;
    if (!kept) writer_->remove_file();
    writer_.reset();
    if (!closed.ok())
        report.storage_error = kept || stats.error.empty()
                                   ? closed.error().message
                                   : fmt::format("{}: nothing was recorded: {}", path, stats.error);
    for (const auto& [kind, count] : {std::pair{loss_queue_full, stats.lost_queue},
                                      {loss_limit, stats.lost_limit},
                                      {loss_ring, stats.dropped_ring},
                                      {loss_error, stats.lost_error},
                                      {loss_vocabulary, stats.lost_vocabulary}})
        if (count > 0) report.storage_losses.push_back({0, 0, std::string(kind), count});
    if (earlier_.empty()) return;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) std::filesystem::rename(earlier_, path, ignored);
    if (std::filesystem::exists(path, ignored)) report.capture = path;
    earlier_.clear();
}

Notes RunFile::notes() const {
    return writer_ ? writer_->notes() : Notes();
}

RunFile::~RunFile() {
    RunReport ignored;
    close(ignored);
}

}  // namespace draftscope

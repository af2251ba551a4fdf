#include "app/jobs/run/run_file.h"

#include <filesystem>
#include <utility>

namespace draftscope {

Status RunFile::open() {
    WriterOptions options;
    options.overwrite = config_.overwrite;
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
    return config_.save.empty() || replaces ? Status() : open();
}

Status RunFile::start() {
    if (!config_.save.empty() && !writer_) DS_TRY(open());
    recorder_.set_storage(writer_.get());
    started_ = attached_ = true;
    return {};
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
    writer_.reset();
    if (!closed.ok()) report.storage_error = closed.error().message;
    for (const auto& [kind, count] : {std::pair{loss_queue_full, stats.lost_queue},
                                      {loss_limit, stats.lost_limit},
                                      {loss_ring, stats.dropped_ring},
                                      {loss_error, stats.lost_error},
                                      {loss_vocabulary, stats.lost_vocabulary}})
        if (count > 0) report.storage_losses.push_back({0, 0, std::string(kind), count});
    std::error_code ignored;
    if (started_ && stats.rows > 0) {
        if (std::filesystem::exists(path, ignored)) report.capture = path;
    } else {
        for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix, ignored);
    }
}

RunFile::~RunFile() {
    RunReport ignored;
    close(ignored);
}

}  // namespace draftscope

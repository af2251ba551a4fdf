#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "storage/capture_file.h"
#include "storage/schema.h"

namespace draftscope::storage {

namespace {

/// A file that this or another process has open must not be deleted.
bool in_use(const std::string& path) {
    std::string message;
    const Database db = open_database(path, SQLITE_OPEN_READWRITE, &message);
    if (!db) return false;
    sqlite3_busy_timeout(db.get(), 0);
    db.exec("PRAGMA locking_mode = EXCLUSIVE");
    return (db.exec("BEGIN EXCLUSIVE; COMMIT") & 0xff) == SQLITE_BUSY;
}

/// Returns whether the header has our application id, regardless of the state of the file and its logs.
bool has_capture_id(const std::string& path) {
    unsigned char header[72] = {};
    std::ifstream file(path, std::ios::binary);
    if (!file.read(reinterpret_cast<char*>(header), sizeof header)) return false;
    std::int32_t id = 0;
    for (int i = 68; i < 72; ++i) id = id << 8 | header[i];
    return id == capture_application_id;
}

}  // namespace

Status prepare_new_capture(const std::string& path, bool overwrite) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path file(path);
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    if (path.empty())
        return bad_input("no file name given for the capture; name one, for example run.dscope");
    if (!fs::is_directory(folder, error))
        return bad_input("{}: the folder {} does not exist; create it or choose another one", path,
                         folder.string());
    if (access(folder.c_str(), W_OK | X_OK) != 0)
        return bad_input("{}: the folder {} is not writable ({}); choose another one", path, folder.string(),
                         std::strerror(errno));
    const fs::file_status status = fs::status(file, error);
    if (fs::exists(status)) {
        if (!fs::is_regular_file(status))
            return bad_input("{}: not a regular file; choose another name", path);
        if (!overwrite)
            return bad_input("{}: the file exists; choose another name or give --overwrite", path);
        if (fs::file_size(file, error) > 0 && !has_capture_id(path))
            return bad_input("{}: not a Draftscope capture, so it is not replaced; choose another name",
                             path);
        if (in_use(path))
            return bad_input("{}: open in another program, perhaps being recorded; choose another name",
                             path);
    }
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
        fs::remove(path + suffix, error);
        if (error) return bad_input("{}{}: can't be replaced: {}", path, suffix, error.message());
    }
    return {};
}

}  // namespace draftscope::storage

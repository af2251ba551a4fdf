#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "storage/capture_file.h"
#include "storage/schema.h"

namespace draftscope::storage {

namespace {

/// A file that this or another process has open must not be deleted.
bool in_use(const std::string& path) {
    std::string message;
    const Database db = open_database(path, SQLITE_OPEN_READWRITE, &message);
    if (!db || !has_locks(path)) return false;
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

std::filesystem::path folder_of(const std::string& path) {
    const std::filesystem::path file(path);
    return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

Status check_folder(const std::string& path) {
    const std::filesystem::path folder = folder_of(path);
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) return {};
    return bad_input("{}: the folder {} does not exist; create it or choose another one", path,
                     folder.string());
}

/// Ends of the names of a capture and of the files that SQLite keeps with it.
constexpr const char* file_suffixes[] = {"", "-wal", "-shm", "-journal"};

}  // namespace

bool has_locks(const std::string& path) {
    const std::string name = path + "-locks";
    const int file = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return true;
    unlink(name.c_str());
    struct flock lock {};
    lock.l_type = F_WRLCK;
    const bool has = fcntl(file, F_GETLK, &lock) == 0;
    close(file);
    return has;
}

FolderLock::FolderLock(const std::string& path)
    : folder_(open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    constexpr int tries = 500;  // a holder needs milliseconds
    for (int i = 0; folder_ >= 0 && i < tries; ++i) {
        if (flock(folder_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

FolderLock::~FolderLock() {
    if (folder_ >= 0) close(folder_);
}

Status prepare_new_capture(const std::string& path, bool overwrite) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path file(path);
    const fs::path folder = folder_of(path);
    if (path.empty())
        return bad_input("no file name given for the capture; name one, for example run.dscope");
    DS_TRY(check_folder(path));
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
    for (const char* suffix : file_suffixes) {
        fs::remove(path + suffix, error);
        if (error) return bad_input("{}{}: can't be replaced: {}", path, suffix, error.message());
    }
    return {};
}

void remove_with_logs(const std::string& path) {
    std::error_code ignored;
    for (const char* suffix : file_suffixes) std::filesystem::remove(path + suffix, ignored);
}

namespace {

/// How a file system lets a capture be written while others read it.
struct FileAccess {
    const char* vfs;
    bool shared;  ///< with a log and shared memory; else one process has the file to itself
    std::string_view note;
};
constexpr FileAccess accesses[] = {
    {nullptr, true, ""},
    {nullptr, false,
     "its file system has no shared memory for locks, so it can be read when the run has ended"},
    {vfs_without_locks, false,
     "its file system has no locks, so no other program may open it before the run has ended"},
};

/// Creates the tables of an empty file and checks that it can be written again. Returns SQLite's code.
int initialize(const Database& db, bool shared) {
    // The schema is written before WAL mode is enabled, so that the main file alone identifies itself.
    int code =
        shared ? SQLITE_OK : db.exec("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = TRUNCATE");
    if (code == SQLITE_OK) code = db.exec("BEGIN IMMEDIATE");
    if (code == SQLITE_OK) code = create_schema(db);
    if (code == SQLITE_OK) code = db.exec("COMMIT");
    if (code == SQLITE_OK && shared && db.text("PRAGMA journal_mode = WAL") != "wal") code = SQLITE_IOERR;
    // The constraints protect the file from other writers; our values come from enums and flags.
    if (code == SQLITE_OK)
        code = db.exec(
            "PRAGMA synchronous = NORMAL; PRAGMA ignore_check_constraints = ON; BEGIN IMMEDIATE; COMMIT");
    return code;
}

}  // namespace

Result<Database> create_capture(const std::string& path, Notes& notes) {
    std::string message;
    const bool locks = has_locks(path);
    for (const FileAccess& access : accesses) {
        if (!locks && access.vfs == nullptr) continue;
        Database db = open_database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &message, access.vfs);
        if (!db) return bad_input("{}: can't be created: {}; choose another folder", path, message);
        const int code = initialize(db, access.shared) & 0xff;
        if (code == SQLITE_OK) {
            if (!access.note.empty()) add_note(notes, "{}: {}", path, access.note);
            return db;
        }
        message = db.message();
        db.close();
        remove_with_logs(path);
        if (code != SQLITE_IOERR && code != SQLITE_PROTOCOL && code != SQLITE_CANTOPEN) break;
    }
    return failed("{}: can't be written: {}; free space or choose another folder", path, message);
}

Status check_new_file(const std::string& out) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (out.empty()) return bad_input("no output file given; name one");
    const fs::file_status status = fs::status(out, error);
    if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))
        return bad_input("{}: not a regular file; name a new file, or --out - for stdout", out);
    if (fs::exists(status)) return bad_input("{}: the file exists; choose another name", out);
    return check_folder(out);
}

Status write_then_rename(const std::string& out, FunctionRef<Status(const std::string& partial)> write) {
    const std::string partial = out + ".partial";
    Status written = write(partial);
    if (!written.ok()) {
        remove_with_logs(partial);
        return written;
    }
    std::error_code error;
    std::filesystem::rename(partial, out, error);
    if (error) return failed("{}: can't be renamed to {}: {}", partial, out, error.message());
    return {};
}

}  // namespace draftscope::storage

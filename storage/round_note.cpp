#include "storage/capture_file.h"
#include "storage/table_sql.h"

namespace draftscope {

Result<bool> add_round_note(const std::string& path, const NoteRow& note) {
    const auto opened = storage::open_capture(path, storage::OpenMode::unchecked);
    if (!opened.ok())
        return bad_input("{}; only a capture can be added to: save a copy as one and open that",
                         opened.error().message);
    const storage::Database& seen = *opened;
    // A recorder's log would be written by two programs, and the end of this one's work would empty it.
    if (seen.text("PRAGMA journal_mode") != "delete")
        return bad_input(
            "{}: is being recorded, or its recording was killed, so nothing can be added; wait for its end, "
            "or "
            "repair it with draftscope check --repair",
            path);
    const auto round = seen.integer(
        fmt::format("SELECT count(*) FROM round WHERE id = {} AND run_id = {}", note.round_id, note.run_id));
    if (round != 1) return false;
    std::string message;
    const storage::Database db = storage::open_database(path, SQLITE_OPEN_READWRITE, &message);
    const auto read_only = [&] {
        return bad_input(
            "{}: the file or its folder is read-only, so nothing can be added; save a copy elsewhere and "
            "open it",
            path);
    };
    if (!db || sqlite3_db_readonly(db.get(), "main") == 1) return read_only();
    storage::Insert<NoteRow> insert(db);
    if (insert && insert.run(note) == SQLITE_DONE) return true;
    const int code = sqlite3_errcode(db.get()) & 0xff;
    if (code == SQLITE_READONLY || code == SQLITE_CANTOPEN) return read_only();
    return storage::file_error(path, db, "adding a note");
}

}  // namespace draftscope

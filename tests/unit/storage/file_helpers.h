#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "capture/record.h"
#include "storage/capture_file.h"
#include "storage/sql.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope::testing {

/// Writes and closes a new capture. Reports failures to gtest.
inline void write_all(const std::string& path, const std::vector<Record>& records) {
    auto writer = require(CaptureWriter::create(path, false));
    for (const Record& record : records) writer->push(record);
    ASSERT_TRUE(is_ok(writer->close()));
    EXPECT_GT(writer->stats().rows, 0);
}

/// Opens a connection as any SQL client would.
inline storage::Database open_plain(const std::string& path, int flags = SQLITE_OPEN_READWRITE) {
    std::string message;
    storage::Database db = storage::open_database(path, flags, &message);
    EXPECT_TRUE(db) << message;
    return db;
}

/// Returns the rows of a query, with columns joined by '|' and NULL as empty text.
inline std::vector<std::string> query(const storage::Database& db, const std::string& sql) {
    std::vector<std::string> out;
    storage::Statement statement = db.prepare(sql);
    EXPECT_TRUE(statement) << db.message();
    if (!statement) return out;
    int code = SQLITE_ROW;
    while ((code = statement.step()) == SQLITE_ROW) {
        std::string row;
        for (int i = 0; i < sqlite3_column_count(statement.get()); ++i) {
            if (i > 0) row += '|';
            row += statement.text(i);
        }
        out.push_back(row);
    }
    EXPECT_EQ(code, SQLITE_DONE) << db.message();
    return out;
}

inline void execute(const std::string& path, const std::string& sql) {
    const storage::Database db = open_plain(path);
    ASSERT_EQ(db.exec(sql), SQLITE_OK) << db.message();
}

/// Parses CSV text (RFC 4180).
inline std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
    std::vector<std::vector<std::string>> rows(1);
    std::string field;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quoted) {
            if (c != '"')
                field += c;
            else if (i + 1 < text.size() && text[i + 1] == '"')
                field += text[++i];
            else
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == ',' || c == '\r') {
            rows.back().push_back(std::move(field));
            field.clear();
        } else if (c == '\n') {
            rows.emplace_back();
        } else {
            field += c;
        }
    }
    rows.pop_back();
    return rows;
}

}  // namespace draftscope::testing

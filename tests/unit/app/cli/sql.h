#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>
#include <vector>

namespace draftscope::testing {

/// A capture file opened with plain SQLite.
class Sql {
  public:
    explicit Sql(const std::string& path, bool writable = false) {
        const int flags = writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
        EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db_, flags, nullptr), SQLITE_OK) << path;
    }
    ~Sql() { sqlite3_close(db_); }
    Sql(const Sql&) = delete;
    Sql& operator=(const Sql&) = delete;

    using Row = std::vector<std::string>;
    std::vector<Row> rows(const std::string& query) const {
        std::vector<Row> out;
        sqlite3_stmt* statement = nullptr;
        EXPECT_EQ(sqlite3_prepare_v2(db_, query.c_str(), -1, &statement, nullptr), SQLITE_OK)
            << sqlite3_errmsg(db_) << "\n"
            << query;
        while (sqlite3_step(statement) == SQLITE_ROW) {
            Row row;
            for (int c = 0; c < sqlite3_column_count(statement); ++c) {
                const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, c));
                row.emplace_back(text != nullptr ? text : "NULL");
            }
            out.push_back(std::move(row));
        }
        sqlite3_finalize(statement);
        return out;
    }
    std::string text(const std::string& query) const {
        const auto all = rows(query);
        return all.empty() ? "" : all[0][0];
    }
    double number(const std::string& query) const {
        const std::string value = text(query);
        return value.empty() || value == "NULL" ? 0.0 : std::stod(value);
    }
    void exec(const std::string& sql) const {
        EXPECT_EQ(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
            << sqlite3_errmsg(db_);
    }

  private:
    sqlite3* db_ = nullptr;
};

}  // namespace draftscope::testing

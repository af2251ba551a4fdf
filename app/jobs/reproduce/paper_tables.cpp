#include "app/jobs/reproduce/paper_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/resolve/assets.h"
#include "app/jobs/run/run_job.h"
#include "base/did_you_mean.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr std::string_view average = "Average";

std::string text_of(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

template <typename T>
std::optional<T> number_of(const json& object, const std::string& key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) return std::nullopt;
    return found->get<T>();
}

/// Returns "table-1" for "Table 1".
std::string short_name(std::string table) {
    for (char& c : table) c = c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return table;
}

/// Returns whether a result's source names the table: "Table 1: tau, rho_tau; Table 2: tokens_per_second".
bool stems_from(const json& result, const std::string& table) {
    const std::string source = text_of(result, "source");
    return source.starts_with(table + ":") || source.find("; " + table + ":") != std::string::npos;
}

std::string row_name(const json& result) {
    const std::string config = text_of(result, "config");
    return text_of(result, "head") + (config.empty() ? "" : " " + config);
}

/// Returns the quantities of a list in the file, without deviations and percent signs.
std::vector<std::string> quantities(const json& list) {
    std::vector<std::string> out;
    for (const json& one : list) {
        std::string name = one.get<std::string>();
        if (name.ends_with("_sd")) continue;
        if (name.ends_with('%')) name.pop_back();
        out.push_back(std::move(name));
    }
    return out;
}

PaperBlock make_block(const json& setup, const json& rerun) {
    PaperBlock block;
    block.label = text_of(setup, "label");
    block.framework = text_of(setup, "framework");
    block.hardware = text_of(setup, "hardware");
    block.drafter_text = text_of(setup, "drafter");
    block.tree_text = text_of(setup, "tree");
    block.max_new_text = text_of(setup, "max_new");
    block.drafter = rerun.at("drafter").get<std::string>();
    block.tree = rerun.at("tree").get<std::string>();
    block.temperature = number_of<double>(setup, "temperature");
    block.batch = number_of<int>(setup, "batch");
    block.runs = number_of<int>(setup, "runs");
    block.max_new = rerun.at("max_new").get<int>();
    block.with_prefill = rerun.at("with_prefill").get<bool>();
    block.assumed = text_of(rerun, "assumed");
    return block;
}

/// Makes the tables of one file.
class PaperFile {
  public:
    PaperFile(std::string stem, const json& data) : stem_(std::move(stem)), data_(data) {}

    /// Returns the tables that have values for `target`, or for their first target if it is "".
    std::vector<PaperTable> tables(const std::string& target) {
        std::vector<PaperTable> out;
        if (!data_.contains("rerun")) return out;
        const json none = json::object();
        const json& own = data_["rerun"].contains("tables") ? data_["rerun"]["tables"] : none;
        const auto add = [&](PaperTable table) {
            if (!table.blocks.empty()) out.push_back(std::move(table));
        };
        for (const json& entry : data_.at("tables")) {
            const std::string name = text_of(entry, "table");
            if (own.contains(name))
                add(own_table(name, entry, own[name], target));
            else if (entry.contains("cells"))
                add(table_of_results(entry, {name}, {}, entry, target));
        }
        for (const auto& [name, entry] : own.items())
            if (entry.contains("title")) add(own_table(name, entry, entry, target));
        return out;
    }

  private:
    PaperTable head_of(const std::string& table, const json& entry) const {
        PaperTable out;
        out.name = fmt::format("{}/{}", stem_, short_name(table));
        out.paper = text_of(data_, "short");
        out.citation = text_of(data_, "citation");
        out.arxiv = fmt::format("{}{}", text_of(data_, "arxiv"), text_of(data_, "version"));
        out.table = table;
        out.title = text_of(entry, "title");
        out.note = text_of(entry, "note");
        const json& rerun = data_["rerun"];
        for (const json& file : rerun.at("prompts")) out.prompts.push_back(file.get<std::string>());
        for (const auto& [task, text] : data_.at("tasks").items()) {
            out.task_texts[task] = text.get<std::string>();
            const bool renamed = rerun.contains("tasks") && rerun["tasks"].contains(task);
            out.tasks[task] = renamed ? rerun["tasks"][task].get<std::string>() : task;
        }
        return out;
    }

    /// Keeps the tasks of the columns, and sets the target's vocabulary.
    void finish(PaperTable& table) const {
        if (!table.columns.empty())
            std::erase_if(table.tasks, [&](const auto& task) {
                return std::ranges::find(table.columns, task.first) == table.columns.end();
            });
        table.vocabulary = data_["rerun"].at("vocabulary").at(table.target).get<int>();
    }

    void set_columns(PaperTable& table, const json& entry) const {
        for (const json& column : entry.at("columns")) table.columns.push_back(column.get<std::string>());
    }

    /// Returns the recipe of a row, by its full name or that of its head.
    std::string recipe(const json& result) const {
        const json& rows = data_["rerun"].at("rows");
        const std::string name = row_name(result), head = text_of(result, "head");
        return rows.contains(name) ? rows[name].get<std::string>() : rows.at(head).get<std::string>();
    }

    PaperRow make_row(const json& result, const PaperTable& table, const json& entry) const {
        PaperRow row;
        row.name = row_name(result);
        row.head = recipe(result);
        if (row.head.starts_with("needs ")) row.needs = std::exchange(row.head, "");
        row.kind = text_of(result, "kind");
        row.tau_kind = result.contains("tau_kind") ? text_of(result, "tau_kind") : row.kind;
        const auto value = [](const json& cells, const std::string& column, const std::string& quantity) {
            return PaperValue{column, quantity, number_of<double>(cells, quantity),
                              number_of<double>(cells, quantity + "_sd")};
        };
        const json none = json::object();
        const json& tasks = result.contains("tasks") ? result["tasks"] : none;
        for (const std::string& quantity : quantities(entry.at("cells")))
            for (const std::string& column : table.columns)
                row.values.push_back(value(tasks.contains(column) ? tasks[column] : none, column, quantity));
        for (const std::string& quantity : quantities(entry.at("average")))
            row.values.push_back(value(result, std::string(average), quantity));
        return row;
    }

    /// Makes a table of the results that stem from `sources`. `only`: names of its rows; empty = all.
    PaperTable table_of_results(const json& about, const std::vector<std::string>& sources,
                                const std::vector<std::string>& only, const json& entry,
                                const std::string& target) const {
        PaperTable table = head_of(text_of(about, "table"), about);
        set_columns(table, entry);
        const json& setups = data_["rerun"].at("setups");
        std::vector<std::string> keys;  // of table.blocks
        for (const json& result : data_.at("results")) {
            const std::string key = text_of(result, "setup"), name = text_of(result, "target");
            const bool listed = std::ranges::any_of(
                sources, [&](const std::string& source) { return stems_from(result, source); });
            const auto is_same = [&](const std::string& row) {
                return row == row_name(result) || row == text_of(result, "head");
            };
            if (!listed || !setups.contains(key) || (!only.empty() && std::ranges::none_of(only, is_same)))
                continue;
            if (std::ranges::find(table.targets, name) == table.targets.end()) table.targets.push_back(name);
            if (table.target.empty() && (target.empty() || target == name)) table.target = name;
            if (name != table.target) continue;
            auto place = std::ranges::find(keys, key);
            if (place == keys.end()) {
                keys.push_back(key);
                place = keys.end() - 1;
                table.blocks.push_back(make_block(data_.at("setups").at(key), setups[key]));
            }
            table.blocks[place - keys.begin()].rows.push_back(make_row(result, table, entry));
        }
        if (!table.blocks.empty()) finish(table);
        return table;
    }

    /// Makes a table that `rerun.tables` describes: of the results of other tables, or with rows of its own,
    /// whose values are the last numbers of the rows in the paper's table.
    PaperTable own_table(const std::string& name, const json& about, const json& own,
                         const std::string& target) const {
        if (own.contains("of")) {
            const auto sources = own["of"].get<std::vector<std::string>>();
            for (const json& entry : data_.at("tables"))
                if (text_of(entry, "table") == sources.front())
                    return table_of_results(about, sources, own.at("only").get<std::vector<std::string>>(),
                                            entry, target);
            return {};
        }
        PaperTable table = head_of(name, about);
        set_columns(table, own);
        table.target = own.at("target").get<std::string>();
        table.targets = {table.target};
        if (!target.empty() && target != table.target) return table;
        const std::string key = own.at("setup").get<std::string>();
        PaperBlock block = make_block(data_.at("setups").at(key), data_["rerun"].at("setups").at(key));
        for (const json& pair : own.at("rows")) {
            PaperRow row;
            row.name = pair.at(0).get<std::string>();
            row.head = pair.at(1).get<std::string>();
            row.kind = row.tau_kind = "measured";
            for (const std::string& quantity : quantities(own.at("average"))) {
                for (const std::string& column : table.columns)
                    row.values.push_back({column, quantity, {}, {}});
                row.values.push_back({std::string(average), quantity, published(about, row.name), {}});
            }
            block.rows.push_back(std::move(row));
        }
        table.blocks.push_back(std::move(block));
        finish(table);
        return table;
    }

    /// Returns the last number of the row whose first cells are `name`, joined by commas.
    static std::optional<double> published(const json& about, const std::string& name) {
        if (!about.contains("rows") || about.contains("setup")) return std::nullopt;
        for (const json& row : about["rows"]) {
            std::vector<std::string> texts;
            for (const json& cell : row)
                if (cell.is_string()) texts.push_back(cell.get<std::string>());
            if (fmt::format("{}", fmt::join(texts, ", ")) == name && row.back().is_number())
                return row.back().get<double>();
        }
        return std::nullopt;
    }

    std::string stem_;
    const json& data_;
};

/// Reads the tables of all files. Tables without values for `target` are left out.
Result<std::vector<PaperTable>> read_tables(const std::string& target) {
    const std::string folder = find_asset("published");
    if (folder.empty())
        return bad_input("assets/published: not found; set DRAFTSCOPE_ASSETS to the folder assets");
    std::vector<fs::path> paths;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error))
        if (entry.path().extension() == ".json") paths.push_back(entry.path());
    std::ranges::sort(paths);
    std::vector<PaperTable> out;
    for (const fs::path& path : paths) {
        try {
            std::ifstream file(path);
            const json data = json::parse(file);
            for (PaperTable& table : PaperFile(path.stem().string(), data).tables(target))
                out.push_back(std::move(table));
        } catch (const json::exception& wrong) {
            return bad_input("{}: not as docs/FORMATS.md, \"Published results\", describes: {}",
                             path.string(), wrong.what());
        }
    }
    return out;
}

}  // namespace

bool PaperTable::has(std::string_view quantity) const {
    for (const PaperBlock& block : blocks)
        for (const PaperRow& row : block.rows)
            for (const PaperValue& value : row.values)
                if (value.quantity == quantity) return true;
    return false;
}

Result<std::vector<PaperTable>> read_paper_tables() {
    return read_tables("");
}

Result<PaperTable> find_paper_table(const std::string& name, const std::string& target) {
    DS_ASSIGN(const std::vector<PaperTable> all, read_tables(""));
    std::vector<std::string_view> known, of_paper;
    const std::string paper = name.substr(0, name.find('/'));
    const PaperTable* found = nullptr;
    for (const PaperTable& table : all) {
        known.push_back(table.name);
        if (table.name.starts_with(paper + "/")) of_paper.push_back(known.back());
        if (table.name == name) found = &table;
    }
    if (found == nullptr)
        return bad_input("reproduce {}: unknown table; {}{}", name,
                         of_paper.empty() ? "draftscope reproduce --list names all"
                                          : fmt::format("known: {}", fmt::join(of_paper, ", ")),
                         did_you_mean(name, known));
    if (target.empty() || target == found->target) return *found;
    DS_ASSIGN(std::vector<PaperTable> of_target, read_tables(target));
    for (PaperTable& table : of_target)
        if (table.name == name) return std::move(table);
    const std::vector<std::string_view> targets(found->targets.begin(), found->targets.end());
    return bad_input("--against {}: {} has no values for this target; known: {}{}", target, name,
                     fmt::join(targets, ", "), did_you_mean(target, targets));
}

std::string fill_sizes(const std::string& head, int paper_vocabulary, int vocabulary, int hidden) {
    std::string out;
    for (std::size_t at = 0; at < head.size();) {
        const std::size_t open = std::min(head.find('{', at), head.size());
        out += head.substr(at, open - at);
        if (open == head.size()) break;
        const std::size_t close = head.find('}', open);
        std::string_view size(head.data() + open + 1, close - open - 1);
        const bool of_hidden = size.starts_with("d/");
        if (of_hidden) size.remove_prefix(2);
        double value = 1;
        std::from_chars(size.data(), size.data() + size.size(), value);
        value = of_hidden ? std::floor(hidden / value) : std::round(value * vocabulary / paper_vocabulary);
        out += fmt::format("{:.0f}", value);
        at = close + 1;
    }
    return out;
}

}  // namespace draftscope

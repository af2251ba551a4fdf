#include "app/gui/models/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format_count.h"
#include "capture/conversations.h"
#include "capture/run_setting.h"
#include "profiler/stats/bench_table.h"
#include "profiler/stats/head_costs.h"

namespace draftscope {
namespace {

/// What a run contributes to the matrix.
struct MatrixRun {
    const RunRow* run = nullptr;
    std::string method;
    std::size_t repetition = 0;
    bool bench = false;
};

/// Returns the method of a run. Absent for a replayed setting, and for the decoding that measures the noise
/// floor.
std::optional<MatrixRun> describe_matrix_run(const RunRow& run) {
    SweepSetting setting;
    setting.drafter = run.drafter;
    setting.head = run.head;
    setting.tree = run.tree;
    MatrixRun out;
    out.run = &run;
    out.method = run.drafter == plain_drafter ? run.drafter : setting_name(setting);
    const auto config = nlohmann::json::parse(run.config_json, nullptr, false);
    // The sweep has the figures of a swept setting.
    if (config.is_object() && config.contains(replayed_recording_key)) return std::nullopt;
    if (!config.is_object() || !config.contains(bench_key)) return out;
    const auto& bench = config[std::string(bench_key)];
    if (!bench.is_object()) return out;
    if (bench.value("control", false)) return std::nullopt;
    out.method = bench.value("method", out.method);
    const int repetition = bench.value("repetition", 0);
    out.repetition = static_cast<std::size_t>(std::max(repetition, 0));
    out.bench = true;
    return out;
}

/// Collects the samples of bench_table() from a capture.
class MatrixBuilder {
  public:
    explicit MatrixBuilder(const Snapshot& snapshot) : snapshot_(snapshot) {}

    MatrixModel build() {
        list_runs();
        list_prompts();
        if (runs_.empty() || samples_.prompts.empty()) {
            model_.empty_text =
                "Compares methods by task: open a capture of: draftscope bench --prompts FILE --heads "
                "full,fr-spec --save bench.dscope";
            return std::move(model_);
        }
        for (const MatrixRun& run : runs_) add(run);
        const BenchTable table = bench_table(samples_);
        model_.columns = {"all"};
        model_.columns.insert(model_.columns.end(), table.tasks.begin(), table.tasks.end());
        for (std::size_t m = 0; m < methods_.size(); ++m) add_row(table, m);
        model_.note = fmt::format("measured, {} of the capture; {}", format_count(runs_.size(), "run"),
                                  interval_text(conversations_));
        if (!samples_.plain) model_.note += "; x AR needs a run with drafter none";
        return std::move(model_);
    }

  private:
    void list_runs() {
        for (const RunRow& row : snapshot_.runs)
            if (auto run = describe_matrix_run(row)) runs_.push_back(std::move(*run));
        const bool bench = std::ranges::any_of(runs_, &MatrixRun::bench);
        if (bench) std::erase_if(runs_, [](const MatrixRun& run) { return !run.bench; });
        for (MatrixRun& run : runs_) {
            // Ordinary runs of one method are told apart: their prompts may differ.
            if (!run.bench && methods_.contains(run.method))
                run.method += fmt::format(" (run {})", run.run->id);
            methods_.emplace(run.method, order_.size());
            if (methods_.size() > order_.size()) order_.push_back(&run);
        }
    }

    /// Prompts of all runs, by their place in the prompt file.
    void list_prompts() {
        std::map<int, const PromptRow*> by_ordinal;
        for (const MatrixRun& run : runs_)
            for (const auto& prompt : snapshot_.prompts)
                if (prompt->run_id == run.run->id) by_ordinal.emplace(prompt->ordinal, prompt.get());
        std::vector<TurnName> names;
        for (const auto& [ordinal, prompt] : by_ordinal) {
            places_[ordinal] = names.size();
            names.push_back({prompt->suite, prompt->external_id, prompt->turn});
        }
        const std::vector<std::size_t> conversations = group_conversations(names);
        for (const auto& [ordinal, prompt] : by_ordinal) {
            const std::size_t conversation = conversations[places_[ordinal]];
            samples_.prompts.push_back({prompt->category, conversation, 0});
            conversations_ = std::max(conversations_, conversation + 1);
        }
        std::size_t repetitions = 1;
        for (const MatrixRun& run : runs_) repetitions = std::max(repetitions, run.repetition + 1);
        samples_.methods.resize(methods_.size());
        for (BenchMethodSamples& method : samples_.methods)
            method.resize(repetitions, samples_.prompts.size());
    }

    void add(const MatrixRun& run) {
        const std::size_t m = methods_.at(run.method);
        if (run.run->drafter == plain_drafter) samples_.plain = m;
        BenchMethodSamples& samples = samples_.methods[m];
        for (const DrivenPrompt& prompt : driven_prompts(snapshot_, run.run->id)) {
            const PromptRow* about = snapshot_.prompt(prompt.prompt_id);
            if (about == nullptr) continue;
            const std::size_t place = places_.at(about->ordinal);
            samples.units[run.repetition][place] += prompt.unit;
            samples.prefill_ns[run.repetition][place] = static_cast<double>(about->prefill_ns);
        }
    }

    void add_row(const BenchTable& table, std::size_t m) {
        MatrixRow row;
        row.name = order_[m]->method;
        row.head = order_[m]->run->head;
        const auto add_cell = [&](const BenchCell& cell) {
            MatrixCell out{std::nullopt, cell.speedup};
            if (cell.tau > 0) out.tau = Estimate{cell.tau, cell.tau_interval};
            row.cells.push_back(std::move(out));
        };
        add_cell(table.rows[m].all);
        for (const BenchCell& cell : table.rows[m].tasks) add_cell(cell);
        row.help = fmt::format("{}\n{:.1f} tokens per second over all prompts", row.name,
                               table.rows[m].all.tokens_per_second);
        model_.rows.push_back(std::move(row));
    }

    const Snapshot& snapshot_;
    MatrixModel model_;
    std::vector<MatrixRun> runs_;
    std::map<std::string, std::size_t> methods_;  ///< place in `order_`
    std::vector<const MatrixRun*> order_;         ///< the first run of each method
    std::map<int, std::size_t> places_;           ///< of prompts in the samples, by ordinal
    BenchSamples samples_;
    std::size_t conversations_ = 0;
};

/// Returns a setting with the conversations of one task.
SweepSetting of_task(const SweepSetting& setting, std::span<const std::string> categories,
                     const std::string& task) {
    SweepSetting out = setting;
    out.units.clear();
    out.full.reset();
    for (std::size_t c = 0; c < setting.units.size() && c < categories.size(); ++c)
        if (task_of_category(categories[c]) == task) out.units.push_back(setting.units[c]);
    return out;
}

std::optional<Estimate> figure(std::optional<double> value) {
    return value ? std::optional(Estimate{*value, std::nullopt}) : std::nullopt;
}

}  // namespace

MatrixModel build_matrix(const Snapshot& snapshot) {
    return MatrixBuilder(snapshot).build();
}

MatrixModel build_sweep_matrix(const SweepData& data, std::span<const std::string> categories,
                               std::optional<std::size_t> usual) {
    MatrixModel model;
    if (data.rows.empty()) {
        model.empty_text = "Compares settings by task: sweep some in the Sweep panel.";
        return model;
    }
    model.columns = {"all"};
    for (const std::string& category : categories) {
        const std::string task = task_of_category(category);
        if (!task.empty() && std::ranges::find(model.columns, task) == model.columns.end())
            model.columns.push_back(task);
    }
    std::vector<std::size_t> rows = sweep_front(data, data.setting(0).batch);
    if (usual && std::ranges::find(rows, *usual) == rows.end()) rows.push_back(*usual);
    for (const std::size_t r : rows) {
        MatrixRow row;
        row.help = setting_name(data.setting(r));
        row.name = (usual == r ? "default: " : "") + shorten_paths(row.help);
        row.head = data.setting(r).head;
        row.cells.resize(model.columns.size());
        row.cells[0] = {data.rows[r].tau, data.rows[r].speedup};
        model.rows.push_back(std::move(row));
    }
    // The settings of a column share their resampled conversations.
    for (std::size_t column = 1; column < model.columns.size(); ++column) {
        std::vector<SweepSetting> parts;
        for (const std::size_t r : rows)
            parts.push_back(of_task(data.setting(r), categories, model.columns[column]));
        for (const SweepRow& figures : sweep_table(parts))
            model.rows[figures.setting].cells[column] = {figures.tau, figures.speedup};
    }
    const SweepSetting& first = data.setting(0);
    model.note = fmt::format("predicted by replay, the front at batch {}{}; {}", first.batch,
                             usual ? " and the default" : "", interval_text(first.units.size()));
    if (!first.cost_error && model.columns.size() > 1)
        model.note += "; those of tasks leave the profile's error out";
    return model;
}

std::vector<MatrixRow> published_matrix_rows(const PublishedGroup& group,
                                             std::span<const std::string> columns) {
    std::vector<MatrixRow> rows;
    for (const PublishedResult* result : group.rows) {
        MatrixRow row;
        row.name = published_label(*result);
        row.head = result->head;
        for (const std::string& line : describe_published(*result))
            row.help += (row.help.empty() ? "" : "\n") + line;
        row.cells.resize(columns.size());
        if (!columns.empty()) row.cells[0] = {figure(result->tau), figure(result->speedup_vs_ar)};
        std::string_view rest = result->tasks;
        while (!rest.empty()) {
            const std::string_view piece = rest.substr(0, rest.find('|'));
            rest.remove_prefix(std::min(piece.size() + 1, rest.size()));
            const std::size_t first = piece.find(':'), second = piece.find(':', first + 1);
            if (first == std::string_view::npos || second == std::string_view::npos) continue;
            const auto column = std::ranges::find(columns, piece.substr(0, first));
            if (column == columns.end() || column == columns.begin()) continue;
            row.cells[column - columns.begin()] = {
                figure(parse_number(piece.substr(first + 1, second - first - 1))),
                figure(parse_number(piece.substr(second + 1)))};
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

namespace {

MatrixTable build_matrix_table(const MatrixModel& model, const PublishedGroup* group, bool speed) {
    MatrixTable table;
    std::vector<MatrixRow> published;
    if (group != nullptr) published = published_matrix_rows(*group, model.columns);
    for (const std::vector<MatrixRow>* rows : {&model.rows, &std::as_const(published)})
        for (const MatrixRow& row : *rows) {
            MatrixLine line{row.name, row.head, row.help, rows == &published, {}};
            for (const MatrixCell& cell : row.cells) {
                const std::optional<Estimate>& value = speed ? cell.speedup : cell.tau;
                line.cells.push_back({value, value ? fmt::format("{:.2f}", value->value) : "-",
                                      value ? estimate_text(*value, 3) : ""});
                if (value)
                    table.max = std::max(table.max, value->interval ? value->interval->high : value->value);
            }
            table.lines.push_back(std::move(line));
        }
    return table;
}

}  // namespace

const MatrixTable& MatrixTableCache::table(const MatrixModel& model, const PublishedGroup* group,
                                           bool speed) {
    return table_.get({&model, model.version, group, speed}, [&] {
        ++builds_;
        return build_matrix_table(model, group, speed);
    });
}

}  // namespace draftscope

#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/support/decode_fixture.h"

/// Settings in which a device runs rounds of its own, as tables of heads, trees and drafters.
namespace draftscope::testing {

/// A head with the settings that its cases use.
struct HeadCase {
    std::string head;
    int calibration_rounds = 0;         ///< the host drafts in these: both kinds of round alternate
    double top_p = 1;                   ///< of sampled cases
    int top_k = 0;                      ///< of sampled cases
    std::string acceptance = "real";    ///< of greedy cases; else the host decides the path
    std::string eagle3_rule = "match";  ///< of sampled cases with eagle3
};

/// Heads that are a single product.
inline const std::vector<HeadCase> linear_heads = {
    {.head = "full", .top_p = 0.8},
    {.head = "fr-spec:v=6,eos=yes", .top_p = 0.8, .acceptance = "rate:0.7"},
    {.head = "slimspec", .calibration_rounds = 3, .top_k = 4, .eagle3_rule = "typical"}};
/// Heads whose shortlist depends on the row or on the sequence.
inline const std::vector<HeadCase> shortlist_heads = {
    {.head = "specvocab:k=5", .calibration_rounds = 3, .top_k = 4},
    {.head = "specvocab:k=4/6,share=per-row", .calibration_rounds = 3, .top_k = 4},
    {.head = "coral:active=3,eos=yes"},
    {.head = "dynaspec:kmax=4,kmin=3,eos=yes", .calibration_rounds = 3},
    {.head = "dynaspec:kmax=4,kmin=3,share=per-row,eos=yes", .calibration_rounds = 3},
    {.head = "microspec:wmax=9,branch=path,stream=all"},
    {.head = "microspec:wmax=9,branch=path,stream=all,gather=indexed"},
    {.head = "microspec:wmax=8,branch=path,stream=all,gather=sync,eos=yes"}};
/// Heads that redistribute probability over the vocabulary.
inline const std::vector<HeadCase> rdk_heads = {
    {.head = "fr-spec:v=6,eos=yes+rdk", .top_p = 0.8, .acceptance = "rate:0.7"},
    {.head = "full+rdk", .top_p = 0.8},
    {.head = "microspec:wmax=9,branch=path,stream=all+rdk"},
    {.head = "specvocab:k=5+rdk", .calibration_rounds = 3, .top_k = 4, .eagle3_rule = "typical"},
    {.head = "specvocab:k=4/6,share=per-row+rdk",
     .calibration_rounds = 3,
     .top_k = 4,
     .eagle3_rule = "typical"},
    {.head = "coral:active=3,eos=yes+rdk"},
    {.head = "dynaspec:kmax=4,kmin=3,eos=yes+rdk", .calibration_rounds = 3}};

/// A tree with the batch that decodes it.
struct TreeCase {
    std::string tree;
    int batch = 3;
};
inline const TreeCase chain = {.tree = "chain=4", .batch = 1};
inline const TreeCase wide = {.tree = "depth=3,topk=4,nodes=12"};
inline const TreeCase ranked = {.tree = "depth=4,topk=3,nodes=20,order=fr"};
/// Levels of other widths than a tree by score has; some ranks are left out.
inline const TreeCase fixed = {.tree = "fixed"};

inline DecodeCase base_case(const std::string& drafter, const HeadCase& head, const TreeCase& tree) {
    return {.drafter = drafter,
            .head = head.head,
            .tree = tree.tree,
            .batch = tree.batch,
            .max_new = 7,
            .calibration_rounds = head.calibration_rounds};
}

inline DecodeCase greedy(const std::string& drafter, const HeadCase& head, const TreeCase& tree) {
    DecodeCase setting = base_case(drafter, head, tree);
    setting.acceptance = head.acceptance;
    return setting;
}

inline DecodeCase sampled(const std::string& drafter, const HeadCase& head, const TreeCase& tree) {
    DecodeCase setting = base_case(drafter, head, tree);
    setting.temperature = 0.8;
    setting.top_p = head.top_p;
    setting.top_k = head.top_k;
    if (drafter.starts_with("eagle3")) setting.verify = head.eagle3_rule;
    return setting;
}

/// The tokens that drafts are sampled from. Fewer than a node may have means that the rest cannot be drawn.
struct DraftSampling {
    int top_k = 0;
    double top_p = 1;
};
inline constexpr DraftSampling all_tokens = {};
inline constexpr DraftSampling some_tokens = {.top_k = 5, .top_p = 0.6};
inline constexpr DraftSampling two_tokens = {.top_k = 2};

/// Drafts are sampled and verified by rejection.
inline DecodeCase rejection(const std::string& drafter, const HeadCase& head, const TreeCase& tree,
                            const DraftSampling& sampling) {
    DecodeCase setting = base_case(drafter, head, tree);
    setting.verify = "pq";
    setting.temperature = 0.9;
    setting.top_k = sampling.top_k;
    setting.top_p = sampling.top_p;
    return setting;
}

/// Cases that share a fixture, because it takes longer to make than a case to run.
struct CaseGroup {
    std::string name;
    std::vector<DecodeCase> cases;
};
inline void PrintTo(const CaseGroup& group, std::ostream* out) {
    *out << group.name;
}

template <typename Make>
std::vector<DecodeCase> for_each(const std::vector<HeadCase>& heads, const Make& add) {
    std::vector<DecodeCase> cases;
    for (const HeadCase& head : heads) add(cases, head);
    return cases;
}

inline std::vector<CaseGroup> tree_groups() {
    std::vector<CaseGroup> groups;
    for (const std::string drafter : {"eagle2", "eagle3"})
        groups.push_back(
            {drafter + "_linear_heads", for_each(linear_heads, [&](auto& cases, const HeadCase& head) {
                 for (const TreeCase& tree : {chain, wide, ranked})
                     cases.push_back(greedy(drafter, head, tree));
                 for (const TreeCase& tree : {wide, ranked}) cases.push_back(sampled(drafter, head, tree));
             })});
    groups.push_back({"shortlist_heads", for_each(shortlist_heads, [](auto& cases, const HeadCase& head) {
                          cases.push_back(greedy("eagle2", head, chain));
                          cases.push_back(sampled("eagle2", head, wide));
                          cases.push_back(greedy("eagle3", head, ranked));
                      })});
    groups.push_back({"rdk_heads", for_each(rdk_heads, [](auto& cases, const HeadCase& head) {
                          cases.push_back(greedy("eagle2", head, wide));
                          cases.push_back(sampled("eagle3", head, ranked));
                      })});
    // The full head drafts until the window holds a token; a level has too few clusters.
    groups.push_back(
        {"heads_that_fall_back",
         {greedy("eagle2", {.head = "microspec:wmax=9,branch=path,stream=all,source=ext"}, wide),
          greedy("eagle2", {.head = "dynaspec:kmax=3,kmin=1,flat=1,eos=yes", .calibration_rounds = 3},
                 wide)}});
    // Candidates from every node, of which only new ones enter the stream.
    groups.push_back({"microspec_new_tokens",
                      for_each({{.head = "microspec:wmax=9,stream=new"},
                                {.head = "microspec:wmax=12,gather=indexed,source=ext,stream=new"}},
                               [](auto& cases, const HeadCase& head) {
                                   cases.push_back(greedy("eagle2", head, wide));
                                   cases.push_back(sampled("eagle2", head, wide));
                                   cases.push_back(rejection("eagle3", head, ranked, all_tokens));
                               })});
    // What a head does if its spec names no size: DynaSpec's budget, and MicroSpec's stream.
    groups.push_back({"default_parameters", for_each({{.head = "microspec:wmax=9"}, {.head = "dynaspec"}},
                                                     [](auto& cases, const HeadCase& head) {
                                                         cases.push_back(greedy("eagle2", head, wide));
                                                         cases.push_back(
                                                             rejection("eagle3", head, ranked, all_tokens));
                                                     })});
    // Features pass norms, those of a prompt and of calibration rounds on their way from the host.
    groups.push_back({"normed_features",
                      {greedy("eagle3_normed", linear_heads[2], wide),
                       rejection("eagle3_normed", linear_heads[2], wide, all_tokens)}});
    return groups;
}

/// Drafters whose levels have a head each. The whole ones bring their own LM heads and have fewer levels than
/// some trees request.
inline std::vector<CaseGroup> parallel_head_groups() {
    const HeadCase full = {.head = "full", .top_p = 0.8};
    std::vector<CaseGroup> groups;
    for (const std::string drafter : {"medusa", "hydra", "medusa_whole", "hydra_whole"}) {
        std::vector<DecodeCase> cases;
        for (const TreeCase& tree : {chain, wide, ranked}) cases.push_back(greedy(drafter, full, tree));
        cases.push_back(sampled(drafter, full, wide));
        DecodeCase typical = sampled(drafter, {.head = "full"}, ranked);
        typical.verify = "typical";
        cases.push_back(typical);
        groups.push_back({drafter + "_full", cases});
    }
    for (const std::string drafter : {"medusa", "hydra"})
        groups.push_back(
            {drafter + "_other_heads", for_each(shortlist_heads, [&](auto& cases, const HeadCase& head) {
                 if (cases.empty()) cases.push_back(greedy(drafter, linear_heads[1], ranked));
                 const bool dynaspec = head.head.starts_with("dynaspec");
                 cases.push_back(dynaspec ? sampled(drafter, head, wide) : greedy(drafter, head, wide));
             })});
    return groups;
}

/// Drafts that are sampled and verified on the device.
inline std::vector<CaseGroup> rejection_groups() {
    // A row that stands in for one without a draft is read again on the device, which the host saves.
    const auto reads_again = [](const HeadCase& head) { return head.head.find("per-row") != head.head.npos; };
    std::vector<CaseGroup> groups = {{"rejection_full", {}}, {"rejection_linear_heads", {}}};
    for (const TreeCase& tree : {chain, wide, ranked})
        for (const DraftSampling& sampling : {all_tokens, some_tokens, two_tokens})
            groups[0].cases.push_back(rejection("eagle2", {.head = "full"}, tree, sampling));
    for (const HeadCase& head : {linear_heads[1], linear_heads[2]}) {
        groups[1].cases.push_back(rejection("eagle3", head, wide, all_tokens));
        groups[1].cases.push_back(rejection("hydra", head, ranked, all_tokens));
        for (DecodeCase setting :
             {rejection("eagle3", head, wide, some_tokens), rejection("hydra", head, ranked, some_tokens)}) {
            setting.acceptance = head.acceptance;
            groups[1].cases.push_back(setting);
        }
    }
    groups.push_back(
        {"rejection_shortlist_heads", for_each(shortlist_heads, [&](auto& cases, const HeadCase& head) {
             cases.push_back(rejection("eagle2", head, wide, all_tokens));
             if (!reads_again(head)) cases.push_back(rejection("eagle3", head, ranked, two_tokens));
         })});
    groups.push_back({"rejection_rdk_heads", for_each(rdk_heads, [&](auto& cases, const HeadCase& head) {
                          cases.push_back(rejection("eagle2", head, wide, all_tokens));
                          if (!reads_again(head)) cases.push_back(rejection("hydra", head, wide, two_tokens));
                      })});
    // One row serves all nodes of a level, each of which takes drafts out of its own copy.
    groups.push_back(
        {"rejection_parallel_heads", {rejection("hydra_whole", {.head = "full"}, ranked, two_tokens)}});
    for (const DraftSampling& sampling : {all_tokens, some_tokens, two_tokens}) {
        groups.back().cases.push_back(rejection("medusa_whole", {.head = "full"}, ranked, sampling));
        groups.back().cases.push_back(rejection("medusa", {.head = "fr-spec:v=6,eos=yes"}, wide, sampling));
    }
    groups.back().cases.push_back(rejection("medusa_whole", {.head = "full"}, chain, all_tokens));
    for (const HeadCase& head : {shortlist_heads[0], shortlist_heads[3], shortlist_heads[6]})
        for (const std::string drafter : {"medusa", "hydra"})
            groups.back().cases.push_back(rejection(drafter, head, wide, some_tokens));
    return groups;
}

inline std::vector<CaseGroup> fixed_tree_groups() {
    const HeadCase full = {.head = "full"};
    std::vector<CaseGroup> groups;
    for (const std::string drafter : {"eagle2", "eagle3", "medusa", "hydra", "medusa_whole", "hydra_whole"}) {
        DecodeCase typical = sampled(drafter, full, fixed);
        typical.verify = "typical";
        groups.push_back({"fixed_tree_" + drafter,
                          {greedy(drafter, full, fixed), typical, rejection(drafter, full, fixed, all_tokens),
                           rejection(drafter, full, fixed, two_tokens)}});
    }
    groups.push_back(
        {"fixed_tree_shortlist_heads", for_each(shortlist_heads, [&](auto& cases, const HeadCase& head) {
             cases.push_back(greedy("eagle2", {.head = head.head}, fixed));
             cases.push_back(rejection("medusa", {.head = head.head}, fixed, all_tokens));
             cases.push_back(sampled("hydra", {.head = head.head}, fixed));
             cases.back().verify = "typical";
         })});
    return groups;
}

inline std::vector<CaseGroup> all_groups() {
    std::vector<CaseGroup> all;
    for (const auto& groups :
         {tree_groups(), parallel_head_groups(), rejection_groups(), fixed_tree_groups()})
        all.insert(all.end(), groups.begin(), groups.end());
    return all;
}

/// Cases for the kernels themselves, which the emulator runs slowly: trees of one level, short texts.
inline std::vector<CaseGroup> kernel_groups() {
    const auto small = [](DecodeCase setting) {
        if (setting.tree != fixed.tree) setting.tree = "depth=1,topk=3,nodes=5";
        setting.batch = 2;
        setting.max_new = 3;
        return setting;
    };
    std::vector<CaseGroup> groups = {{"shortlist_heads", {}}, {"drafters", {}}, {"fixed_tree", {}}};
    for (const char* head : {"specvocab:k=5", "specvocab:k=5+rdk"})
        groups[0].cases.push_back(small(greedy("eagle2", {.head = head}, wide)));
    for (const char* head : {"dynaspec:kmax=4,kmin=3,eos=yes", "microspec:wmax=9,branch=path,stream=all"})
        groups[0].cases.push_back(small(sampled("eagle2", {.head = head, .top_p = 0.8}, wide)));
    groups[0].cases[2].verify = "typical";
    for (const char* head : {"specvocab:k=5", "microspec:wmax=9,branch=path,stream=all", "specvocab:k=5+rdk"})
        groups[0].cases.push_back(small(rejection("eagle2", {.head = head}, wide, all_tokens)));
    groups[0].cases.push_back(
        small(rejection("eagle2", {.head = "dynaspec:kmax=4,kmin=3,eos=yes"}, wide, {.top_k = 4})));
    groups[1].cases = {small(rejection("medusa_whole", {.head = "full"}, wide, two_tokens)),
                       small(greedy("hydra_whole", {.head = "full"}, wide)),
                       small(rejection("eagle3", {.head = "full"}, wide, two_tokens))};
    groups[2].cases = {small(greedy("eagle2", {.head = "full"}, fixed)),
                       small(rejection("eagle2", {.head = "full"}, fixed, {.top_k = 3}))};
    return groups;
}

}  // namespace draftscope::testing

#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/fit/kl_training.h"
#include "engine/fit/router.h"

namespace draftscope::fit {

/// Numbers of the held-out report by name; every one is a mean over held-out rows.
using Report = std::map<std::string, double>;

/// How a head does on held-out rows.
///   kl          KL(target || head) on text rows, the target renormalised over the head's support
///   kl_full     the same for the full head
///   kl_drafter  KL(full head || head) on drafted rows
///   top1        drafted rows where head and full head agree on the best token
///   recall10    share of the full head's ten best tokens among the head's ten best, on drafted rows
///   hits        text rows whose best token is the token that came; hits_full: of the full head
///   coverage    text rows whose token is in the head's support
/// `support` is the token of each logit, rising; empty = logit i is token i.
Report evaluate_head(kernels::Exec& exec, const Samples& samples, const Teacher& teacher, Student& student,
                     const std::vector<TokenId>& support);

/// The same for heads that score a routed part of the vocabulary exactly: which groups a row chooses decides.
///   coverage    text rows whose token is in a chosen group
///   top1        drafted rows whose best token is; recall10: share of the ten best that are
///   active      mean tokens scored, as a share of the vocabulary
/// `always` are tokens in every shortlist.
Report evaluate_router(kernels::Exec& exec, const Samples& samples, Router& router, RouterInput input,
                       std::span<const std::int32_t> group_of, int chosen, std::span<const TokenId> always);

}  // namespace draftscope::fit

#include "engine/run/loss_log.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {

LossLog::LossLog(const std::string& path, bool resumed) : path_(path) {
  const bool isNew = !resumed || !std::ifstream(path).good();
  file_.open(path, resumed ? std::ios::app : std::ios::trunc);
  if (isNew) file_ << "step,loss,learning_rate,gradient_norm,seconds\n";
  check();
}

void LossLog::add(int step, const StepLog& log, double learningRate) {
  Ns begin = std::numeric_limits<Ns>::max(), end = 0;
  for (const Span& span : log.spans) {
    begin = std::min(begin, span.start);
    end = std::max(end, span.end);
  }
  file_ << fmt::format("{},{:.9g},{:.6g},{},{:.6f}\n", step, log.loss.value_or(0), learningRate,
                       log.gradientNorm ? fmt::format("{:.6g}", *log.gradientNorm) : "",
                       log.spans.empty() ? 0.0 : static_cast<double>(end - begin) * 1e-9);
  file_.flush();
  check();
}

void LossLog::check() const {
  if (!file_) throw Error(fmt::format("Cannot write the loss log {}; see whether its folder exists and the disk is full.", path_));
}

}  // namespace pw

// Observers of several engines: they get one call at a time, as from one engine.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "services/common/base/mutex.h"
#include "services/gateway/engine/engine_observer.h"

namespace tandem::gateway {

// Thread-safe.
class SerialObservers final : public EngineObserver {
 public:
  // `observers`: Borrowed; must outlive this.
  explicit SerialObservers(std::vector<EngineObserver*> observers)
      : observers_(std::move(observers)) {}

  // From any thread, as they are called by one engine.
  void RequestRefused(Api api, const absl::Status& status) override {
    for (EngineObserver* observer : observers_) observer->RequestRefused(api, status);
  }
  void ConstraintCompiled(const absl::Status& status, absl::Duration time) override {
    for (EngineObserver* observer : observers_) observer->ConstraintCompiled(status, time);
  }
  void ConstraintFound() override {
    for (EngineObserver* observer : observers_) observer->ConstraintFound();
  }

  void DraftStepEnded(const StepReport& report) override {
    for (EngineObserver* observer : observers_) observer->DraftStepEnded(report);
  }

  void PlanInForce(const PlanReport& report) override {
    Call([&](EngineObserver& observer) { observer.PlanInForce(report); });
  }
  void MaskMade(absl::Duration time) override {
    Call([&](EngineObserver& observer) { observer.MaskMade(time); });
  }
  void RequestAccepted(RequestNumber number, const EngineRequest& request,
                       absl::Time submitted) override {
    Call([&](EngineObserver& observer) { observer.RequestAccepted(number, request, submitted); });
  }
  void RequestStarted(RequestNumber number, Api api, absl::Time submitted,
                      absl::Time now) override {
    Call([&](EngineObserver& observer) { observer.RequestStarted(number, api, submitted, now); });
  }
  void RequestFirstToken(RequestNumber number, Api api, absl::Time submitted,
                         absl::Time now) override {
    Call(
        [&](EngineObserver& observer) { observer.RequestFirstToken(number, api, submitted, now); });
  }
  void RequestEnded(const RequestReport& report) override {
    Call([&](EngineObserver& observer) { observer.RequestEnded(report); });
  }
  void StepBegins(const StepKey& key, std::span<const RequestRows> requests,
                  StepTrace& trace) override {
    Call([&](EngineObserver& observer) { observer.StepBegins(key, requests, trace); });
  }
  void StepEnded(const StepReport& report) override {
    Call([&](EngineObserver& observer) { observer.StepEnded(report); });
  }

 private:
  template <typename Report>
  void Call(const Report& report) {
    MutexLock lock(mutex_);
    for (EngineObserver* observer : observers_) report(*observer);
  }

  Mutex mutex_;
  const std::vector<EngineObserver*> observers_;  // Borrowed.
};

}  // namespace tandem::gateway

#ifndef DAEMON_CONTRACT_WIRE_MESSAGE_TYPES_H_
#define DAEMON_CONTRACT_WIRE_MESSAGE_TYPES_H_

namespace fineserve::wire {

// Forward declarations of admission.fbs's messages, for headers:
// daemon/contract/wire/message.h defines them and is expensive to compile.
struct MessageT;
struct HelloT;
struct RunningRequestT;
struct SubmitT;
struct ProgressT;
struct FinishedT;
struct WaitsT;
struct WelcomeT;
struct VerdictT;
struct DrainT;
struct EngineFiguresT;
struct ModelsT;
struct RequestsT;
struct RefusedT;
struct ModelDemandT;
struct PlanT;
struct PlannedPlaceT;
struct PlanNoticeT;
struct RefusedConnectionsT;
struct ReportT;
struct PlanStateT;
struct SteerT;

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_MESSAGE_TYPES_H_

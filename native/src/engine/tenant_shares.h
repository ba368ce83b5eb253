// Weighted fair queueing over tenants, in FLOPs: who goes next into a plan. Decides only; knows no
// clock, no thread and no work. One of these serves sampling, another training.
//
// 1. Virtual time of an account = FLOPs served / weight. Whoever wants a place in a plan gets one
// in the order of virtual time, place by place, so accounts that compete are served in the ratio of
// their weights, and rows of many ride in one plan.
// 2. Virtual time tells apart only those who compete. An account that got all it asked for is put
// on a level with the least of those who did not, and where nobody was left wanting all are put on
// a level: idleness earns no credit, and use of what nobody else wanted costs none.
// 3. An account that was idle starts at that level, too: a newcomer is neither ahead nor behind.
// 4. Age bound: whoever has waited for a place while `max_wait` FLOPs were done (by anybody) goes
// before virtual time; and nobody is so far behind that catching up would take more than `max_wait`
// FLOPs, so no backlog of the past shuts others out.
// 5. Between places of a plan accounts that keep competing never differ by more than one place of
// each (in virtual time).
// No result depends on any of it.
#ifndef HOTBED_ENGINE_TENANT_SHARES_H_
#define HOTBED_ENGINE_TENANT_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hotbed {

// A tenant within an engine: small, dense, never reused. 0 belongs to calls that name none.
using AccountId = uint32_t;

class TenantShares {
 public:
  explicit TenantShares(double max_wait);

  // weight > 0.
  void SetWeight(AccountId account, double weight);

  // A plan begins: `wanting` are the accounts with work for it (each once), `clock` the FLOPs done
  // so far by anybody.
  void Open(const std::vector<AccountId>& wanting, double clock);
  // Serves the accounts one place after another, each time the one whose turn it is. give(account)
  // fills one place and returns its FLOPs, or nullopt when the account takes no more. Ends when
  // nobody takes more. May be called several times between Open and Close.
  template <class Give>
  void Deal(const std::vector<AccountId>& accounts, Give&& give) {
    Gather(accounts);
    while (!heap_.empty()) {
      const std::optional<double> cost = give(heap_.front());
      if (cost) {
        Serve(*cost);
      } else {
        Leave();
      }
    }
  }
  // FLOPs known only once the plan stood, beyond (or below) what was dealt.
  void Correct(AccountId account, double cost);
  // The plan stands; `unmet` are those of Open's accounts that have work left which it did not
  // take.
  void Close(const std::vector<AccountId>& unmet);

  // Of these, all of them Open's, the one whose turn it is; nullopt when there are none.
  std::optional<AccountId> First(const std::vector<AccountId>& accounts) const;

  double weight(AccountId account) const;
  double served(AccountId account) const;        // FLOPs, all time
  uint64_t plans(AccountId account) const;       // in which it had a place
  uint64_t overdue(AccountId account) const;     // places that the age bound gave it
  double virtual_time(AccountId account) const;  // FLOPs / weight
  // How far behind the most served of those in the last plan, in virtual FLOPs; 0 while it is in
  // none.
  double lag(AccountId account) const;

 private:
  struct Account {
    double weight = 1;
    double time = 0;
    double served = 0;
    double waiting_since = 0;  // clock
    uint64_t plans = 0;
    uint64_t overdue = 0;
    bool active = false;
    bool in_plan = false;
    bool unmet = false;
  };

  Account& At(AccountId account);
  const Account* Find(AccountId account) const;
  bool IsOverdue(const Account& account) const;
  // Whether a's turn comes after b's.
  bool After(AccountId a, AccountId b) const;
  void Gather(const std::vector<AccountId>& accounts);
  void Serve(double cost);
  void Leave();

  const double max_wait_;
  std::vector<Account> accounts_;
  std::vector<AccountId> active_, before_;
  std::vector<AccountId> heap_;
  double level_ = 0;  // where those start who were idle
  double clock_ = 0;
  double most_ = 0;  // virtual time of the most served of the last plan
};

}  // namespace hotbed

#endif  // HOTBED_ENGINE_TENANT_SHARES_H_

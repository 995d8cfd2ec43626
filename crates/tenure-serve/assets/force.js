// Takes a lock away from its holders: with a reason, and with the name typed again.

import { $, say } from "./dom.js";
import { headers } from "./feed.js";
import { named, visible, who } from "./format.js";

export class Force {
  constructor(toast) {
    this.toast = toast;
    this.dialog = $("force");
    this.is_allowed = false;
    $("force-cancel").addEventListener("click", () => this.dialog.close());
    $("force-form").addEventListener("input", () => this.check());
    $("force-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
  }

  open(lock) {
    this.lock = lock;
    const more = lock.holding > 1 ? ` and ${lock.holding - 1} more` : "";
    const [first] = lock.holders;
    say($("force-what"), `${named(lock.name)} is held by ${first ? who(first.about) : "unknown"}${more}. The holders are notified, their fences are overtaken, and a record is kept. What they do in the meantime is not stopped.`);
    $("force-reason").value = "";
    $("force-name").value = "";
    $("force-error").hidden = true;
    this.check();
    this.dialog.showModal();
    $("force-reason").focus();
  }

  /** A name that cannot be typed is typed as it is shown. */
  check() {
    const typed = $("force-name").value;
    const is_name = typed === this.lock.name || typed === named(this.lock.name);
    $("force-go").disabled = !is_name || !$("force-reason").value.trim();
  }

  async send() {
    if ($("force-go").disabled) return;
    const { lock } = this;
    // If the lock has another holder by now, that one keeps it.
    const owner = lock.holding === 1 && lock.holders.length === 1 ? lock.holders[0].owner : undefined;
    const body = { reason: $("force-reason").value.trim(), confirm: lock.name, owner };
    try {
      const answer = await fetch(`/v1/locks/${encodeURIComponent(lock.name)}/force-release`, {
        method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(body),
      });
      if (!answer.ok) throw new Error((await answer.json()).detail);
      this.dialog.close();
      this.toast(`${named(lock.name)} was taken away`);
    } catch (error) {
      say($("force-error"), visible(error.message));
      $("force-error").hidden = false;
    }
  }
}

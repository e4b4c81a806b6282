"use strict";
// On paper, everything is open. Where this script does not run, the style sheet says the same to browsers that know how.
for (const details of document.querySelectorAll("details.technical")) {
  let wasOpen = false;
  addEventListener("beforeprint", () => {
    wasOpen = details.open;
    details.open = true;
  });
  addEventListener("afterprint", () => {
    details.open = wasOpen;
  });
}

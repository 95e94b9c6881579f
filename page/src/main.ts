// The report's page: causes, what changed, the matrix, and one cell at a time. No library, no network.

import { showCauses, showChanges } from "./causes";
import { listenToDrawer, openFromAddress } from "./drawer";
import { showPlots } from "./figures";
import { listenToKeys } from "./keys";
import { draw, fillFilters, listenToFilters } from "./matrix";
import { element } from "./text";

/** On a phone the matrix comes first, for the keyboard as for the eye. */
function arrange(): void {
  const narrow = matchMedia("(max-width: 600px)");
  const matrix = element("matrix"), after = matrix.nextElementSibling as HTMLElement;
  const place = (): void => {
    if (narrow.matches) after.parentElement?.prepend(matrix);
    else after.before(matrix);
  };
  narrow.addEventListener("change", place);
  place();
}

arrange();
showCauses();
showChanges();
fillFilters();
listenToFilters();
listenToKeys();
listenToDrawer();
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll<HTMLDetailsElement>("#clusters details, .about")) part.open = true;
});
draw();
openFromAddress();
(window.requestIdleCallback ?? setTimeout)(() => showPlots());
document.documentElement.dataset.ready = "1";

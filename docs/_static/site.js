/* Cells of words, which columns have to leave room for; columns of numbers are narrow. */
for (const cell of document.querySelectorAll("article .table-wrapper td"))
  if (cell.textContent.length > 16) cell.classList.add("words");
/* What scrolls sideways can be scrolled by keyboard, too: it is a stop of the Tab key as long as a part of it is out of sight. */
const watch = new ResizeObserver(entries => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
for (const box of document.querySelectorAll("article :is(.table-wrapper, .math, div.highlight, pre)")) watch.observe(box);

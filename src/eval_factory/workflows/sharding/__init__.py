"""One evaluation, asked by several processes and scored by one."""
